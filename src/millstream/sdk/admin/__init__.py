"""Admin and group requests, with plain values as results."""
