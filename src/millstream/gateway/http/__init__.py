"""The web API: routes, bodies and documentation, derived from one table of operations."""
