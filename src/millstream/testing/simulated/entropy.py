"""Simulates entropy: a seed determines all random bytes."""

from random import Random


class SimulatedEntropy:
    """An `Entropy` that takes its bytes from the given generator."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def token(self, size_bytes: int) -> bytes:
        return self._random.randbytes(size_bytes)


def branch(random: Random, name: str) -> Random:
    """Create a separate generator for one part of a simulation, so that the parts do not affect each other's draws."""
    return Random(f"{random.getrandbits(64)}/{name}")
