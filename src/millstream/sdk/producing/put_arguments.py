"""Defines the default of an argument that every put must have, and the error without it."""

from typing import Any


class _Required:
    """The default of a required argument, as `help()` shows it."""

    def __repr__(self) -> str:
        return "<required>"


NO_VALUE: Any = _Required()
"""The value of a put that was called without one. None is a value: a tombstone."""


def missing_value(name: str) -> TypeError:
    """Make the error of a put without a value."""
    return TypeError(f"{name}() needs a value; value=None writes a tombstone, which deletes the key")
