"""Defines injected randomness, so that a simulated run can be repeated from its seed."""

import os
from typing import Protocol
from uuid import UUID


class Entropy(Protocol):
    def token(self, size_bytes: int) -> bytes:
        """Return unpredictable random bytes. In a simulation, the seed determines them."""
        ...


class SystemEntropy:
    """The random numbers of the operating system."""

    def token(self, size_bytes: int) -> bytes:
        return os.urandom(size_bytes)


def random_uuid(entropy: Entropy) -> UUID:
    """Return a new random UUID (version 4)."""
    return UUID(bytes=entropy.token(16), version=4)
