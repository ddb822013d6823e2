"""Where reading begins and where it ends, as a user says it.

==================== =====================================================================================
said                 meant
==================== =====================================================================================
"beginning"          the first message that is there
"latest"             behind the last message there is now
an int               this offset
a dict               an offset for each partition (by number, or by topic and number); the others as without
a datetime           the first message at or after this moment, or behind the last where none is that late
a timedelta          the same, that long ago
a float              the same, in seconds since 1970
==================== =====================================================================================

As an end none of it belongs to what is read: reading stops before it.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk import requests
from millstream.sdk.arguments import INT64_MAX
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.requests import BEGINNING, LATEST
from millstream.sdk.time_arguments import Times

Hint = str | int | float | datetime | timedelta | Mapping[int, int] | Mapping[TopicPartition, int]

_NAMED = {"beginning": BEGINNING, "latest": LATEST}


class StartPositions:
    """A hint that was understood: an offset for some partitions, and for the others a question to their leaders."""

    def __init__(self, hint: Hint, times: Times, name: str, otherwise: int | None = None) -> None:
        """INVALID_SETTING, naming the parameter, for what is no place. `otherwise` is what a dict leaves out."""
        self._offsets: Mapping[int, int] | Mapping[TopicPartition, int] = {}
        self._offset: int | None = None
        self._question = otherwise
        if isinstance(hint, str):
            if hint not in _NAMED:
                raise _no_place(name, hint, '"beginning", "latest", an offset, a dict of offsets or a time are')
            self._question = _NAMED[hint]
        elif isinstance(hint, Mapping):
            for key in hint:
                _check_partition(key, name)
            self._offsets = {key: _checked(offset, name) for key, offset in hint.items()}  # type: ignore[assignment]
        elif isinstance(hint, int):
            self._offset = _checked(hint, name)
        elif isinstance(hint, timedelta):
            self._question = times.moment_ms(-min(abs(hint), abs(timedelta.min)), name)  # `max` has no negative.
        else:
            self._question = times.moment_ms(hint, name)

    async def find(
        self, asking: RetryingCaller, places: Iterable[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, int]:
        """The offset of each partition; none where a dict says nothing about it and nothing else was said."""
        found: dict[TopicPartition, int] = {}
        asked: dict[TopicPartition, int] = {}
        for where in places:
            said = self._said(where)
            if said is not None:
                found[where] = said
            elif self._question is not None:
                asked[where] = self._question
        if not asked:
            return found
        answers = await asking.leaders(asked, requests.list_offsets, deadline)
        late = dict.fromkeys((where for where, answer in answers.items() if answer.offset < 0), LATEST)
        answers |= await asking.leaders(late, requests.list_offsets, deadline)
        return found | {where: answer.offset for where, answer in answers.items()}

    def _said(self, where: TopicPartition) -> int | None:
        if self._offset is not None:
            return self._offset
        by_place: Mapping[object, int] = self._offsets  # type: ignore[assignment]
        return by_place.get(where, by_place.get(where.partition))


def _checked(offset: object, name: str) -> int:
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset <= INT64_MAX:
        raise _no_place(name, offset, f"offsets are whole numbers from 0 to {INT64_MAX}")
    return offset


def _check_partition(key: object, name: str) -> None:
    number = key[1] if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str) else key
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise _no_place(name, key, "partitions are given by number, or by topic and number")


def _no_place(name: str, given: object, why: str) -> MillstreamError:
    return MillstreamError(ErrorCode.INVALID_SETTING, f"{name}={given!r} is no place in a topic: {why}")
