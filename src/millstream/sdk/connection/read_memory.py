"""Counts the memory of reads in progress, for a program that limits the memory of all its requests together.

The client counts the batches that brokers sent and the messages that it decodes, until it returns the messages. The
program counts them from then on.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from millstream.records.batch import DECODED_BYTES_MAX


class ReadMemory(Protocol):
    """The memory that all reads of a client share."""

    unpacked_bytes_max: int
    """Largest size of a batch after decompression."""

    def take(self, size_bytes: int) -> None:
        """Count bytes. Raises a retriable error to refuse them."""
        ...

    def give_back(self, size_bytes: int) -> None:
        """Release bytes."""
        ...


class UnlimitedMemory:
    """Memory without a common limit."""

    unpacked_bytes_max = DECODED_BYTES_MAX

    def take(self, size_bytes: int) -> None:
        """Count nothing."""

    def give_back(self, size_bytes: int) -> None:
        """Count nothing."""


@contextmanager
def held(memory: ReadMemory, size_bytes: int) -> Iterator[None]:
    """Hold bytes for the duration of a block."""
    memory.take(size_bytes)
    try:
        yield
    finally:
        memory.give_back(size_bytes)
