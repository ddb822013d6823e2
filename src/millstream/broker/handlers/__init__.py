"""Handles requests, with one module per API: it decodes the request, executes it and encodes the response."""
