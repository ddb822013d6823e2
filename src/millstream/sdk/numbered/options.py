"""Defines the options of a numbered writer, their defaults and their checks."""

from dataclasses import dataclass
from hashlib import blake2b

from millstream.model.limits import FIRST_SELF_NAMED_PRODUCER
from millstream.sdk.arguments import INT32_MAX, INT64_MAX, check_number, wrong
from millstream.sdk.producing.options import BATCH_BYTES, TIMEOUT_S, ProducerSettings

EPOCHS = 2**15
"""Number of epochs of a name; epochs begin at 0."""


@dataclass(frozen=True, slots=True)
class NumberedOptions:
    """The options of a numbered writer. Creating them raises INVALID_SETTING, which names an invalid option."""

    name: bytes | None
    """The name of the job; None for a job that is not repeated."""
    epoch: int = 0
    partitions: int | None = None
    """Number of partitions over which rows are distributed; None: all of the topic."""
    turn: int = 0
    """The partition of the first block of rows without key and partition."""
    batch_bytes: int = BATCH_BYTES
    compression: str = "none"
    level: int | None = None
    timeout_s: float = TIMEOUT_S
    """Maximum time without progress, that is, until another batch is stored."""

    def __post_init__(self) -> None:
        ProducerSettings(
            batch_bytes=self.batch_bytes, compression=self.compression, level=self.level, timeout_s=self.timeout_s
        )
        if self.name is not None and (not isinstance(self.name, bytes) or not self.name):
            raise wrong("name", self.name, "it must be non-empty bytes or None")
        check_number("epoch", self.epoch, least=0, most=EPOCHS - 1)
        check_number("turn", self.turn, least=0, most=INT64_MAX)
        if self.partitions is not None:
            check_number("partitions", self.partitions, least=1, most=INT32_MAX)


def producer_id_of(name: bytes) -> int:
    """Derive a producer id from a name, in the range that brokers do not assign."""
    digest = blake2b(name, digest_size=8).digest()
    return FIRST_SELF_NAMED_PRODUCER | (int.from_bytes(digest) & (FIRST_SELF_NAMED_PRODUCER - 1))
