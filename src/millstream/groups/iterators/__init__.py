"""Iterators: stretches of partitions that a coordinator gives out to clients, and what servers know of them."""
