"""One handler per API, each with the versions it serves."""
