"""Administration and group requests, with their responses as plain values."""
