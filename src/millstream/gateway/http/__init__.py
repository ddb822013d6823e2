"""The web API: routes, bodies and documentation, all from one table."""
