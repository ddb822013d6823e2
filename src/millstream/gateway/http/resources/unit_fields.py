"""Defines fields for durations and sizes: a number, or a text with a unit such as `30s` or `1MiB`."""

from collections.abc import Callable
from typing import Annotated, Literal, TypeVar

from msgspec import Meta

from millstream.gateway.failures import TitledError, invalid
from millstream.model.errors import ErrorCode
from millstream.model.units import quoted, read_duration_ms, read_duration_s, read_size_bytes

N = TypeVar("N", int, float)

WAIT_MAX_S = 60
READ_BYTES_MAX = 16 * 2**20
IN_FLIGHT_MS_MAX = 2**31 - 1

Wait = Annotated[
    Annotated[float, Meta(ge=0, le=WAIT_MAX_S)] | str,
    Meta(description="How long to wait for the first message: seconds, or a text such as `500ms`; at most 60 seconds."),
]
ReadBytes = Annotated[
    Annotated[int, Meta(ge=1, le=READ_BYTES_MAX)] | str,
    Meta(description="Approximate size limit of one answer: bytes, or a text such as `1MiB`; at most 16 MiB."),
]
OnBadBatch = Annotated[
    Literal["raise", "skip"],
    Meta(description="At a stored batch that cannot be decoded: report UNDECODABLE_BATCH, or skip the batch."),
]
InFlight = Annotated[
    Annotated[int, Meta(ge=1, le=IN_FLIGHT_MS_MAX)] | str,
    Meta(description="Time after which an uncommitted iterator expires: milliseconds, or a text such as `30s`."),
]


def wait_s(given: float | str) -> float:
    """Return the value of the field `wait` in seconds. Raises INVALID_SETTING, naming the field, for another text."""
    return _parsed("wait", given, read_duration_s, 0, WAIT_MAX_S)


def read_bytes(given: int | str) -> int:
    """Return the value of the field `max_bytes`. Raises INVALID_SETTING, naming the field, for another text."""
    return _parsed("max_bytes", given, read_size_bytes, 1, READ_BYTES_MAX)


def in_flight_ms(given: int | str | None) -> int | None:
    """Return the value of the field `in_flight_ms`. Raises INVALID_SETTING, naming the field, for another text."""
    return None if given is None else _parsed("in_flight_ms", given, read_duration_ms, 1, IN_FLIGHT_MS_MAX)


def _parsed(field: str, given: N | str, read: Callable[[str], N], least: int, most: int) -> N:
    if not isinstance(given, str):
        return given
    try:
        found = read(given)
    except ValueError as error:
        text = f"{field}: {quoted(given)} is {error}"
        title = "the duration or size is not valid"
        raise TitledError(ErrorCode.INVALID_SETTING, text, field, title=title) from None
    if not least <= found <= most:
        raise invalid(field, f"{quoted(given)} is not from {least} to {most}", "a field is out of range")
    return found
