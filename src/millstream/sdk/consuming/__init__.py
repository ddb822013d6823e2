"""Reading as programs do it: one engine for consumers with and without a group, below the public classes."""
