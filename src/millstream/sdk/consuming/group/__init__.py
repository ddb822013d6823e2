"""Group membership of a consumer (KIP-848): joining, heartbeats and offset commits."""
