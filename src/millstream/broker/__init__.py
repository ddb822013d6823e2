"""The listener, the connections, the dispatch table, and one handler per API."""
