"""What users say, held against what brokers can be told: INVALID_SETTING names the argument and what is wrong.

Public classes check here, once and before anything is asked of a broker; what a single message is made of is checked
where it is taken, as TypeError or ValueError.
"""

from collections.abc import Collection, Iterable, Mapping
from inspect import CO_COROUTINE
from typing import Any, TypeVar

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition, check_topic_name

INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
TEXT_MAX = 2**15 - 1
"""So many bytes have room in a string of the protocol; brokers may allow fewer, and say so."""

NAME_MAX = TEXT_MAX // 4
"""So many characters do, whatever they are."""

_SHOWN_MAX = 60

V = TypeVar("V")


def wrong(name: str, given: object, problem: str, code: ErrorCode = ErrorCode.INVALID_SETTING) -> MillstreamError:
    """The refusal of an argument, which shows as much of it as can be read."""
    shown = repr(given)
    return MillstreamError(
        code, f"{name}={shown if len(shown) < _SHOWN_MAX else shown[:_SHOWN_MAX] + '...'}: {problem}"
    )


def check_text(name: str, given: object, least: int, most: int, code: ErrorCode = ErrorCode.INVALID_SETTING) -> None:
    """INVALID_SETTING, or what brokers call it, for what cannot be said to one: no text, not so many characters, or
    half a character."""
    if not isinstance(given, str):
        raise wrong(name, given, "it must be str", code)
    if not least <= len(given) <= most:
        raise wrong(name, given, f"it has {len(given)} characters, {least} to {most} are allowed", code)
    try:
        size_bytes = len(given.encode())
    except UnicodeEncodeError:
        raise wrong(name, given, "it cannot be written as UTF-8", code) from None
    if size_bytes > TEXT_MAX:
        raise wrong(name, given, f"it has {size_bytes} bytes, {TEXT_MAX} are allowed", code)


def check_group(given: object) -> None:
    """INVALID_GROUP_ID for what cannot be a group's name anywhere; brokers know which can be."""
    check_text("group_id", given, 0, NAME_MAX, ErrorCode.INVALID_GROUP_ID)


def check_number(name: str, given: object, least: int, most: int, code: ErrorCode = ErrorCode.INVALID_SETTING) -> None:
    """INVALID_SETTING for what is no whole number; and that, or what brokers call it, for none within these bounds."""
    if isinstance(given, bool) or not isinstance(given, int):
        raise wrong(name, given, "it must be a whole number")
    if not least <= given <= most:
        raise wrong(name, given, f"{least} to {most} are possible", code)


def check_choice(name: str, given: object, choices: Collection[str]) -> None:
    """INVALID_SETTING for what is none of these words."""
    if not isinstance(given, str) or given not in choices:
        raise wrong(name, given, f"{', '.join(map(repr, choices))} are possible")


def check_kind(name: str, given: object, *kinds: type) -> None:
    """INVALID_SETTING for what is none of what it must be."""
    if not isinstance(given, kinds):
        raise wrong(name, given, f"{' or '.join(kind.__name__ for kind in kinds)} is expected")


def check_callback(name: str, given: object, *, is_awaited: bool = False) -> None:
    """INVALID_SETTING for what cannot be called, or would have to be awaited where nobody does; None stands for no
    callback."""
    if given is not None and not callable(given):
        raise wrong(name, given, "a function is expected")
    if not is_awaited and getattr(getattr(given, "__code__", None), "co_flags", 0) & CO_COROUTINE:
        raise wrong(name, given, "it is called and not awaited, so a function without async is expected")


# Names.


def as_names(name: str, given: object) -> list[str]:
    """A text by itself is one name, and no sequence of letters."""
    if isinstance(given, bytes | bytearray) or not isinstance(given, Iterable):
        raise wrong(name, given, "a name is expected, or several")
    names = [given] if isinstance(given, str) else list(given)
    for each in names:
        check_text(name, each, 0, NAME_MAX)
    return names


def names_or_all(name: str, given: object) -> list[str] | None:
    """As `as_names`; None stands for all."""
    return None if given is None else as_names(name, given)


def named_topics(given: object) -> tuple[str, ...]:
    """A topic, or several, each once; INVALID_SETTING or INVALID_TOPIC for what names none."""
    names = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    for name in names:
        if not isinstance(name, str):
            raise wrong("topics", given, "names of topics are expected")
        check_topic_name(name)
    return tuple(dict.fromkeys(names))


# Partitions.


def check_partitions(given: object, name: str = "partitions") -> None:
    """INVALID_SETTING for what is no choice of partitions; None is all of them."""
    if given is not None and (isinstance(given, str) or not isinstance(given, Iterable)):
        raise wrong(name, given, "numbers of partitions are expected")
    for number in given or ():
        check_number(name, number, 0, INT32_MAX)


def place(topic: str, partition: int) -> TopicPartition:
    """A partition, which may not be there; INVALID_TOPIC or INVALID_SETTING for what cannot be one."""
    check_topic_name(topic)
    check_number("partition", partition, 0, INT32_MAX)
    return TopicPartition(topic, partition)


def as_places(name: str, given: object) -> list[TopicPartition]:
    """Partitions, each a topic and a number."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise wrong(name, given, "partitions are expected, each a topic and a number")
    checked: set[str] = set()
    found: list[TopicPartition] = []
    for each in given:
        if not isinstance(each, tuple) or len(each) != 2:
            raise wrong(name, each, "a partition is a topic and a number")
        topic, number = each
        # There may be thousands of a topic.
        if type(topic) is not str or topic not in checked or type(number) is not int or not 0 <= number <= INT32_MAX:
            checked.add(place(topic, number).topic)
        found.append(each if isinstance(each, TopicPartition) else TopicPartition(topic, number))
    return found


def by_place(name: str, given: Mapping[Any, V]) -> dict[TopicPartition, V]:
    """Something for each of some partitions."""
    check_kind(name, given, Mapping)
    return dict(zip(as_places(name, given), given.values(), strict=True))


def offsets_by_place(name: str, given: Mapping[Any, int], least: int = 0) -> dict[TopicPartition, int]:
    """Places to go on at."""
    found = by_place(name, given)
    for where, offset in found.items():
        if type(offset) is not int or not least <= offset <= INT64_MAX:
            check_number(f"offset of {where}", offset, least, INT64_MAX)
    return found
