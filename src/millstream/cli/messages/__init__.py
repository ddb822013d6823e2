"""Reads and writes messages for the commands `put`, `get`, `tail` and `bench`."""
