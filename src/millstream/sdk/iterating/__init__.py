"""The engine of iterator clients, below the public class, and its requests."""
