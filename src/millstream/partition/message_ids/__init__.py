"""Indexes the message ids that a partition recognises within the window, in memory and in sorted runs on disk."""
