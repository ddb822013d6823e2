"""Defines the default bootstrap address, and the environment variable that overrides it."""

BOOTSTRAP_VARIABLE = "MILLSTREAM_BOOTSTRAP"
"""The environment variable that programs may read for the bootstrap address."""
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
