"""The message ids that a partition recognises within the window: an index in memory, sorted runs on disk."""
