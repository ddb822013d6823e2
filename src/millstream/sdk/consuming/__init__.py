"""The consumer: one engine, with or without a group, below the public classes."""
