"""Runs the state machine of groups on shards of `__consumer_offsets`, and projects its state into SQL tables."""
