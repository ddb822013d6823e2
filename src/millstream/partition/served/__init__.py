"""The partitions that this broker serves: opened at start, created, grown, deleted, and maintained."""
