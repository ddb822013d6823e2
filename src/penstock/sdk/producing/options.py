"""How a producer works, as its user sets it."""

from dataclasses import dataclass

from penstock.model.errors import ErrorCode, PenstockError
from penstock.records.compression import LEVELS, Compression

ALL = -1
BATCH_BYTES = 1_000_000
"""Where a batch is closed: what is counted is more than what the batch takes, and topics take a mebibyte by default."""

BATCH_COUNT = 100_000
LINGER_S = 0.005
MAX_BYTES = 64 * 1024 * 1024
TIMEOUT_S = 120.0
ROOM_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Options:
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
            given = getattr(self, name)
            if not isinstance(given, int) or given < 1:
                raise _wrong(name, given, "it must be a whole number, at least 1")
        for name in ("linger_s", "timeout_s", "room_timeout_s"):
            if getattr(self, name) < 0:
                raise _wrong(name, getattr(self, name), "it must not be negative")
        if self.acks not in (ALL, 0, 1):
            raise _wrong("acks", self.acks, "it must be -1 (all), 1 or 0")
        if not isinstance(self.compression, str):
            raise _wrong("compression", self.compression, "it must be str; 'none' is for none")
        try:
            Compression.named(self.compression)
        except ValueError as error:
            raise _wrong("compression", self.compression, str(error)) from None
        if self.level is not None and self.level not in LEVELS.get(self.compression, ()):
            raise _wrong("level", self.level, f"compression {self.compression!r} has no such level")


def _wrong(name: str, value: object, why: str) -> PenstockError:
    return PenstockError(ErrorCode.INVALID_SETTING, f"{name}={value!r}: {why}")
