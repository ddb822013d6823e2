"""Message ids: what makes a retry known as one, whoever sends it and whenever (within the window).

A *natural* id is the writer's own: 1 to 255 bytes that do not begin with `~`. A *made* id is given out by a producer
that was given none; it names what the header of the record's batch says anyway, so it costs nothing per record:
`~producer id.epoch.partition.first sequence of the batch.place in the batch`, in decimal numbers. One id has one form:
a number has no sign and no leading zeros.
"""

import re
from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError

ID_BYTES_MAX = 255
ID_HEADER = "millstream.id"
"""The record header that carries the id of a message that was stored under one."""

MADE_PREFIX = b"~"
EPOCH_MAX = 2**15 - 1
"""No batch with made ids is stored under it, so that there is always a higher epoch to fence one with."""

_MADE = re.compile(rb"~(0|[1-9]\d{0,18})\.(0|[1-9]\d{0,4})" + rb"\.(0|[1-9]\d{0,9})" * 3)
_PRODUCER_ID_MAX = 2**63 - 1
_INT32_MAX = 2**31 - 1


class MadeId(NamedTuple):
    """The place of a record among what its producer has sent."""

    producer_id: int
    epoch: int
    partition: int
    base_sequence: int
    place: int
    """Among the records of its batch, from 0."""

    def __str__(self) -> str:
        return "~" + ".".join(map(str, self))

    def encode(self) -> bytes:
        """The id as it is on the wire."""
        return str(self).encode()


MessageId = MadeId | bytes
"""An id, taken apart if it is a made one."""


def parse_message_id(data: bytes) -> MessageId:
    """What an id on the wire is; INVALID_MESSAGE_ID, saying what is wrong, when it is none."""
    if not data:
        raise _invalid(data, "it is empty")
    if len(data) > ID_BYTES_MAX:
        raise _invalid(data, f"it has {len(data)} bytes, {ID_BYTES_MAX} are allowed")
    if not data.startswith(MADE_PREFIX):
        return data
    match = _MADE.fullmatch(data)
    if match is None:
        raise _invalid(data, "only ids that a producer has made begin with ~, and this is none")
    made = MadeId(*map(int, match.groups()))
    if made.producer_id > _PRODUCER_ID_MAX or made.epoch >= EPOCH_MAX or max(made[2:]) > _INT32_MAX:
        raise _invalid(data, "one of its numbers is too large")
    return made


def as_message_id(value: str | bytes | MadeId) -> bytes:
    """An id that a caller gives, as it goes on the wire; INVALID_MESSAGE_ID or TypeError when it cannot be one."""
    if not isinstance(value, str | bytes | bytearray | memoryview | MadeId):
        raise TypeError(f"a message id is bytes or str, not {type(value).__name__}")
    data = value.encode() if isinstance(value, str | MadeId) else bytes(value)
    parse_message_id(data)
    return data


def _invalid(data: bytes, problem: str) -> MillstreamError:
    return MillstreamError(ErrorCode.INVALID_MESSAGE_ID, f"message id {data[:40]!r}: {problem}")
