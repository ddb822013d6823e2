"""Parses and encodes message ids. A message with the same id is stored only once within the window.

A *natural* id is chosen by the writer: 1 to 255 bytes that do not begin with `~`. A *made* id is derived by a producer
for a message without an id. It repeats what the header of the record batch contains, so it costs no bytes per record:
`~producer id.epoch.partition.first sequence number of the batch.index in the batch`, in decimal numbers. Each id has
exactly one form: a number has no sign and no leading zeros.
"""

import re
from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError

ID_BYTES_MAX = 255
ID_HEADER = "millstream.id"
"""The record header that carries the message id."""

MADE_PREFIX = b"~"
EPOCH_MAX = 2**15 - 1
"""The highest producer epoch. No batch with made ids uses it, so a higher epoch to fence a producer always exists."""

_MADE = re.compile(rb"~(0|[1-9]\d{0,18})\.(0|[1-9]\d{0,4})" + rb"\.(0|[1-9]\d{0,9})" * 3)
_PRODUCER_ID_MAX = 2**63 - 1
_INT32_MAX = 2**31 - 1


class MadeId(NamedTuple):
    """Identifies a record by its producer, its batch and its index in the batch."""

    producer_id: int
    epoch: int
    partition: int
    base_sequence: int
    place: int
    """The index of the record in its batch, from 0."""

    def __str__(self) -> str:
        return "~" + ".".join(map(str, self))

    def encode(self) -> bytes:
        """Return the id in its wire form."""
        return str(self).encode()


MessageId = MadeId | bytes
"""A message id; a made id is split into its numbers."""


def parse_message_id(data: bytes) -> MessageId:
    """Parse an id in its wire form. Raise INVALID_MESSAGE_ID with the reason if it is not valid."""
    if not data:
        raise _invalid(data, "it is empty")
    if len(data) > ID_BYTES_MAX:
        raise _invalid(data, f"it has {len(data)} bytes; at most {ID_BYTES_MAX} are allowed")
    if not data.startswith(MADE_PREFIX):
        return data
    match = _MADE.fullmatch(data)
    if match is None:
        raise _invalid(data, "ids that begin with ~ are reserved for producers, and this is not one of theirs")
    made = MadeId(*map(int, match.groups()))
    if made.producer_id > _PRODUCER_ID_MAX or made.epoch >= EPOCH_MAX or max(made[2:]) > _INT32_MAX:
        raise _invalid(data, "one of its numbers is too large")
    return made


def as_message_id(value: str | bytes | MadeId) -> bytes:
    """Return a caller's id in its wire form. Raise INVALID_MESSAGE_ID or TypeError if it is not valid."""
    if not isinstance(value, str | bytes | bytearray | memoryview | MadeId):
        raise TypeError(f"a message id is bytes or str, not {type(value).__name__}")
    data = value.encode() if isinstance(value, str | MadeId) else bytes(value)
    parse_message_id(data)
    return data


def _invalid(data: bytes, problem: str) -> MillstreamError:
    return MillstreamError(ErrorCode.INVALID_MESSAGE_ID, f"message id {data[:40]!r}: {problem}")
