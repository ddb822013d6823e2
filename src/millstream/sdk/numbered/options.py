"""How a numbered writer works, as its user sets it."""

from dataclasses import dataclass
from hashlib import blake2b

from millstream.model.limits import FIRST_SELF_NAMED_PRODUCER
from millstream.sdk.arguments import INT32_MAX, INT64_MAX, check_number, wrong
from millstream.sdk.producing.options import BATCH_BYTES, TIMEOUT_S, ProducerOptions

EPOCHS = 2**15
"""A name has so many epochs, from 0 on."""


@dataclass(frozen=True, slots=True)
class NumberedOptions:
    """Checked when they are made: INVALID_SETTING names the one that cannot be."""

    name: bytes | None
    """None: nobody is to come again under it."""
    epoch: int = 0
    partitions: int | None = None
    """How many partitions rows are spread over; None: as many as the topic has."""
    turn: int = 0
    """Where rows begin that neither a key nor a column decides for."""
    batch_bytes: int = BATCH_BYTES
    compression: str = "none"
    level: int | None = None
    timeout_s: float = TIMEOUT_S
    """How long it may take until another batch is stored."""

    def __post_init__(self) -> None:
        ProducerOptions(
            batch_bytes=self.batch_bytes, compression=self.compression, level=self.level, timeout_s=self.timeout_s
        )
        if self.name is not None and (not isinstance(self.name, bytes) or not self.name):
            raise wrong("name", self.name, "it must be bytes, and not empty, or None")
        check_number("epoch", self.epoch, 0, EPOCHS - 1)
        check_number("turn", self.turn, 0, INT64_MAX)
        if self.partitions is not None:
            check_number("partitions", self.partitions, 1, INT32_MAX)


def producer_id_of(name: bytes) -> int:
    """The id that a name stands for, one of those that brokers give to nobody."""
    digest = blake2b(name, digest_size=8).digest()
    return FIRST_SELF_NAMED_PRODUCER | (int.from_bytes(digest) & (FIRST_SELF_NAMED_PRODUCER - 1))
