"""The engine of push subscriptions, below the public class, and its requests."""
