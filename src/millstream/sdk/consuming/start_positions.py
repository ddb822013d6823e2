"""Converts a user's start or stop position to an offset for each partition.

==================== =========================================================================================
position             meaning
==================== =========================================================================================
"beginning"          the oldest available message; "earliest" is a synonym
"latest"             the log end at the time of the lookup; "end" is a synonym
an int               this offset; numbers that look like milliseconds since 1970 are refused
a dict               an offset for each partition (by number, or by topic and number); the default for others
a datetime           the first message at or after this time; the log end if there is none
a timedelta          the same, that long ago; also as text, such as "10m"
a float              the same, in seconds since 1970
==================== =========================================================================================

A stop position is exclusive: reading ends before it.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.model.start_words import follow_start
from millstream.model.units import looks_like_time_ms
from millstream.sdk import requests
from millstream.sdk.arguments import INT64_MAX
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.feed.leader_call import ask_partitions
from millstream.sdk.requests import BEGINNING, LATEST
from millstream.sdk.time_arguments import Times, not_a_position

StartPosition = str | int | float | datetime | timedelta | Mapping[int, int] | Mapping[TopicPartition, int]


ADDED_FROM = 0
"""The start offset of a partition that was added to its topic after the reader started."""


def reader_start(hint: StartPosition | None, group: str | None, times: Times) -> "StartPositions":
    """Return the start of a reader that waits for new messages; None is the default of its kind of reader.

    That default also applies to partitions that a dict leaves out.
    """
    default = follow_start(group)
    return StartPositions(default if hint is None else hint, times, "start", times.lookup_ms(default, "start"))


class StartPositions:
    """A validated position: fixed offsets for some partitions, and a time to look up at the leaders for the others."""

    def __init__(self, hint: StartPosition, times: Times, name: str, default: int | None = None) -> None:
        """Validate a position; raises INVALID_SETTING, naming the parameter. `default` applies to partitions that a
        dict leaves out."""
        self._offsets: Mapping[int, int] | Mapping[TopicPartition, int] = {}
        self._offset: int | None = None
        self._time_ms = default
        """The time that leaders look up for the other partitions, or one of the codes BEGINNING and LATEST."""
        if isinstance(hint, str):
            self._time_ms = times.lookup_ms(hint, name)
        elif isinstance(hint, Mapping):
            for key in hint:
                _check_partition(key, name)
            self._offsets = {key: checked_offset(offset, name) for key, offset in hint.items()}  # type: ignore[assignment]
        elif isinstance(hint, int):
            self._offset = check_single_offset(hint, name)
        elif isinstance(hint, float | datetime | timedelta):
            self._time_ms = times.moment_ms(hint, name)
        else:
            raise not_a_position(hint, name)

    @property
    def is_beginning(self) -> bool:
        """True if every partition is read from its beginning."""
        return self._time_ms == BEGINNING and self._offset is None and not self._offsets

    async def find(
        self, asking: RetryingCaller, places: Iterable[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, int]:
        """Return the offset of each partition. A partition that a dict leaves out is omitted if there is no default."""
        found: dict[TopicPartition, int] = {}
        lookups: dict[TopicPartition, int] = {}
        for where in places:
            fixed = self._fixed_offset(where)
            if fixed is not None:
                found[where] = fixed
            elif self._time_ms is not None:
                lookups[where] = self._time_ms
        if not lookups:
            return found
        answers = await ask_partitions(asking, lookups, requests.list_offsets, deadline)
        late = dict.fromkeys((where for where, answer in answers.items() if answer.offset < 0), LATEST)
        answers |= await ask_partitions(asking, late, requests.list_offsets, deadline)
        return found | {where: answer.offset for where, answer in answers.items()}

    def _fixed_offset(self, where: TopicPartition) -> int | None:
        if self._offset is not None:
            return self._offset
        by_partition: Mapping[object, int] = self._offsets  # type: ignore[assignment]
        return by_partition.get(where, by_partition.get(where.partition))


def check_single_offset(offset: int, name: str) -> int:
    """Check an offset for all partitions. A number that looks like a time in milliseconds is refused."""
    if looks_like_time_ms(checked_offset(offset, name)):
        times = f"for a time give {offset / 1000} (seconds as a float), a datetime or a timedelta"
        text = f"{name}: {offset} looks like a time in milliseconds, and an int is an offset; {times}"
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)
    return offset


def checked_offset(offset: object, name: str) -> int:
    """Check that a value can be an offset; raises INVALID_SETTING, naming the parameter."""
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset <= INT64_MAX:
        raise _invalid(name, offset, f"an offset is an integer from 0 to {INT64_MAX}")
    return offset


def _check_partition(key: object, name: str) -> None:
    number = key[1] if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str) else key
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise _invalid(name, key, "the key of a partition is its number, or a tuple of topic and number")


def _invalid(name: str, given: object, expected: str) -> MillstreamError:
    return MillstreamError(ErrorCode.INVALID_SETTING, f"{name}={given!r} is not a position: {expected}")
