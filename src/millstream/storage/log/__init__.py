"""One partition's log on disk: segments, sparse index, write buffer and reads."""
