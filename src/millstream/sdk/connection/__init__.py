"""Connections to brokers: addresses, handshake, retries and the cached cluster metadata."""
