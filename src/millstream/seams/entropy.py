"""Chance, handed in, so that a simulated run can be repeated from its seed."""

import os
from typing import Protocol
from uuid import UUID


class Entropy(Protocol):
    def token(self, size_bytes: int) -> bytes:
        """Random bytes that nobody can guess (in a simulation: that the seed decides)."""
        ...


class SystemEntropy:
    """The operating system's random numbers."""

    def token(self, size_bytes: int) -> bytes:
        return os.urandom(size_bytes)


def random_uuid(entropy: Entropy) -> UUID:
    """A new version 4 id."""
    return UUID(bytes=entropy.token(16), version=4)
