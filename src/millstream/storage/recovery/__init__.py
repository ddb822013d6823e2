"""Recovers logs at startup, after a clean stop or a crash, and repairs them after a disk error."""
