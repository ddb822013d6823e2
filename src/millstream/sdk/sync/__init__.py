"""The public classes that block. Generated from `aio` by scripts/sync.py, all but `facade` and `portal`."""
