"""How a producer works, as its user sets it."""

from dataclasses import dataclass

from millstream.records.compression import LEVELS, Compression
from millstream.sdk.arguments import INT64_MAX, check_number, wrong

ALL = -1
BATCH_BYTES = 1_000_000
"""Where a batch is closed: what is counted is more than what the batch takes, and topics take a mebibyte by default."""

BATCH_COUNT = 100_000
LINGER_S = 0.005
MAX_BYTES = 64 * 1024 * 1024
TIMEOUT_S = 120.0
ROOM_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """Checked when they are made: INVALID_SETTING names the one that cannot be."""

    batch_bytes: int = BATCH_BYTES
    batch_count: int = BATCH_COUNT
    linger_s: float = LINGER_S
    compression: str = "none"
    level: int | None = None
    acks: int = ALL
    max_bytes: int = MAX_BYTES
    timeout_s: float = TIMEOUT_S
    """By when a message is stored, or has failed."""
    room_timeout_s: float = ROOM_TIMEOUT_S
    """How long a put waits, in threads, while the producer holds as much as it may."""

    in_order: bool = False
    """Whether nothing more goes to a partition once a message to it failed, so that no later one is stored instead."""

    def __post_init__(self) -> None:
        for name in ("batch_bytes", "batch_count", "max_bytes"):
            check_number(name, getattr(self, name), 1, INT64_MAX)
        for name in ("linger_s", "timeout_s", "room_timeout_s"):
            if getattr(self, name) < 0:
                raise wrong(name, getattr(self, name), "it must not be negative")
        check_number("acks", self.acks, ALL, 1)
        if not isinstance(self.compression, str):
            raise wrong("compression", self.compression, "it must be str; 'none' is for none")
        try:
            Compression.named(self.compression)
        except ValueError as error:
            raise wrong("compression", self.compression, str(error)) from None
        is_number = isinstance(self.level, int) and not isinstance(self.level, bool)
        if self.level is not None and not (is_number and self.level in LEVELS.get(self.compression, ())):
            raise wrong("compression_level", self.level, f"compression {self.compression!r} has no such level")
