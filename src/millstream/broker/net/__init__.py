"""Accepts connections, receives request frames and sends responses, within limits on memory and time per client."""
