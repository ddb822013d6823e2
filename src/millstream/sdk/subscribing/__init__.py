"""Push subscriptions: their requests, and the engine below the public class."""
