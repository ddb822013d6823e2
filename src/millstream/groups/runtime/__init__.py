"""The runtime that keeps group state in `__consumer_offsets`: shards, loading, projections."""
