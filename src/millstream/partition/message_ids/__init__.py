"""The message ids that a partition knows: keys, runs on disk, and the index of both that is held to a window."""
