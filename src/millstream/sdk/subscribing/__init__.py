"""Being sent messages as programs do it: the engine of subscriptions, below the public class."""
