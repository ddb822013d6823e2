"""The resources of the web API: request and response bodies, and their handlers."""
