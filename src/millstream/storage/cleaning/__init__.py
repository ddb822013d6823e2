"""Removes data from logs: retention, compaction and the rewriting of segments."""
