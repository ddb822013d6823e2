"""Defines the options of a producer, their defaults and their checks."""

from dataclasses import dataclass
from typing import TypedDict

from millstream.records.compression import LEVELS, Compression
from millstream.sdk.arguments import INT64_MAX, Size, as_size, check_number, wrong
from millstream.sdk.time_arguments import Time, Times
from millstream.sdk.value_formats import EncodedValues

ALL = -1
BATCH_BYTES = 1_000_000
"""Default size of a batch. Batches encode to less than this estimate, and topics accept 1 MiB by default."""

BATCH_COUNT = 100_000
LINGER_S = 0.005
MAX_BYTES = 64 * 1024 * 1024
TIMEOUT_S = 120.0
ROOM_TIMEOUT_S = 60.0


class ProducerBaseOptions(TypedDict, total=False):
    """The options of `client.producer`, which describes them, except the one that decides the type of its values."""

    group: str | None
    linger: Time
    batch_bytes: Size
    batch_count: int
    compression: str
    compression_level: int | None
    acks: int
    max_bytes: Size
    timeout: Time
    room_timeout: Time


class ProducerOptions(ProducerBaseOptions, total=False):
    """The options of a producer as a dict, for `client.producer(**options)`. All are optional.

    `group`, `values`, `linger`, `batch_bytes`, `batch_count`, `compression`, `compression_level`, `acks`, `max_bytes`,
    `timeout` and `room_timeout`.
    """

    values: EncodedValues


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The validated options of a producer. Creating them raises INVALID_SETTING, which names an invalid option."""

    batch_bytes: int = BATCH_BYTES
    batch_count: int = BATCH_COUNT
    linger_s: float = LINGER_S
    compression: str = "none"
    level: int | None = None
    acks: int = ALL
    max_bytes: int = MAX_BYTES
    timeout_s: float = TIMEOUT_S
    """Delivery timeout: each message is stored or has failed by then."""
    room_timeout_s: float = ROOM_TIMEOUT_S
    """Timeout of a put in a thread while the buffer is full."""

    in_order: bool = False
    """Whether a partition gets no further messages after one failed, so that no later message is stored."""

    def __post_init__(self) -> None:
        for name in ("batch_bytes", "batch_count", "max_bytes"):
            check_number(name, getattr(self, name), least=1, most=INT64_MAX)
        for name in ("linger_s", "timeout_s", "room_timeout_s"):
            if getattr(self, name) < 0:
                raise wrong(name, getattr(self, name), "it must not be negative")
        check_number("acks", self.acks, least=ALL, most=1)
        if not isinstance(self.compression, str):
            raise wrong("compression", self.compression, "it must be str ('none' disables compression)")
        try:
            Compression.named(self.compression)
        except ValueError as error:
            raise wrong("compression", self.compression, str(error)) from None
        is_number = isinstance(self.level, int) and not isinstance(self.level, bool)
        if self.level is not None and not (is_number and self.level in LEVELS.get(self.compression, ())):
            raise wrong("compression_level", self.level, f"compression {self.compression!r} has no such level")


def engine_options(times: Times, keywords: ProducerBaseOptions) -> ProducerSettings:
    """Validate the options of `client.producer`, converting texts with units; raises INVALID_SETTING, naming one."""
    return ProducerSettings(
        batch_bytes=as_size("batch_bytes", keywords.get("batch_bytes", BATCH_BYTES)),
        batch_count=keywords.get("batch_count", BATCH_COUNT),
        linger_s=times.span_s(keywords.get("linger", LINGER_S), "linger"),
        compression=keywords.get("compression", "none"),
        level=keywords.get("compression_level"),
        acks=keywords.get("acks", ALL),
        max_bytes=as_size("max_bytes", keywords.get("max_bytes", MAX_BYTES)),
        timeout_s=times.span_s(keywords.get("timeout", TIMEOUT_S)),
        room_timeout_s=times.span_s(keywords.get("room_timeout", ROOM_TIMEOUT_S), "room_timeout"),
    )
