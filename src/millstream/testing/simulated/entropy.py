"""Chance that a seed decides."""

from random import Random


class SimulatedEntropy:
    """An `Entropy` whose bytes follow from the generator it is given."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def token(self, size_bytes: int) -> bytes:
        return self._random.randbytes(size_bytes)


def branch(random: Random, name: str) -> Random:
    """A generator of its own for one part of a simulation, so that what one part draws does not move the others."""
    return Random(f"{random.getrandbits(64)}/{name}")
