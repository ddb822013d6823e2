"""Reading and writing messages for the commands `put`, `get`, `tail` and `bench`."""
