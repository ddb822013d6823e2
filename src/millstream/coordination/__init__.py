"""Runs pure state machines whose state is kept in the log of a partition."""
