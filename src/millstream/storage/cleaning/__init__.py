"""Removal of data: retention, compaction and the rewriting of segments."""
