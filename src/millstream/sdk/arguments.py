"""Checks the arguments of the public API; INVALID_SETTING names the argument, its value and the problem.

Public methods check their arguments here once, before they send a request. The parts of a single message are checked by
the producer, which raises TypeError or ValueError.
"""

from collections.abc import Collection, Iterable, Mapping
from inspect import CO_COROUTINE
from typing import Any, TypeVar

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition, check_topic_name
from millstream.model.units import quoted, read_size_bytes

Size = int | str
"""The accepted types of every size: bytes, or a text with a unit such as "32MiB"."""

INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
TEXT_MAX = 2**15 - 1
"""Maximum length in bytes of a string of the protocol. Brokers may have lower limits."""

NAME_MAX = TEXT_MAX // 4
"""Number of characters that always fit into `TEXT_MAX` bytes of UTF-8."""

_SHOWN_MAX = 60

V = TypeVar("V")


def wrong(name: str, given: object, problem: str, code: ErrorCode = ErrorCode.INVALID_SETTING) -> MillstreamError:
    """Return the error for an argument, with its name, its shortened value and the problem."""
    return MillstreamError(code, f"{name}={shortened(given)}: {problem}")


def shortened(given: object) -> str:
    """Return a value as an error message shows it."""
    shown = repr(given)
    return shown if len(shown) < _SHOWN_MAX else shown[:_SHOWN_MAX] + "..."


def check_text(name: str, given: object, *, least: int, most: int, code: ErrorCode = ErrorCode.INVALID_SETTING) -> None:
    """Check that `given` is text of `least` to `most` characters that UTF-8 can encode; raises `code` otherwise."""
    if not isinstance(given, str):
        raise wrong(name, given, "it must be str", code)
    if not least <= len(given) <= most:
        raise wrong(name, given, f"it has {len(given)} characters ({least} to {most} are allowed)", code)
    try:
        size_bytes = len(given.encode())
    except UnicodeEncodeError:
        raise wrong(name, given, "it cannot be encoded as UTF-8", code) from None
    if size_bytes > TEXT_MAX:
        raise wrong(name, given, f"it has {size_bytes} bytes (at most {TEXT_MAX} are allowed)", code)


def check_group(given: object) -> None:
    """Raise INVALID_GROUP_ID for a value that no broker can accept as a group id. Brokers may refuse more."""
    check_text("group_id", given, least=0, most=NAME_MAX, code=ErrorCode.INVALID_GROUP_ID)


def check_number(
    name: str, given: object, *, least: int, most: int, code: ErrorCode = ErrorCode.INVALID_SETTING
) -> None:
    """Raise INVALID_SETTING unless `given` is an integer, and `code` unless it is from `least` to `most`."""
    if isinstance(given, bool) or not isinstance(given, int):
        raise wrong(name, given, "it must be an integer")
    if not least <= given <= most:
        raise wrong(name, given, f"it must be from {least} to {most}", code)


def as_size(name: str, given: Size, *, least: int = 1, most: int = INT64_MAX) -> int:
    """Return a size in bytes; raises INVALID_SETTING unless it is a number or a text from `least` to `most` bytes."""
    size_bytes = given
    if isinstance(given, str):
        try:
            size_bytes = read_size_bytes(given)
        except ValueError as error:
            raise MillstreamError(ErrorCode.INVALID_SETTING, f"{name}: {quoted(given)} is {error}") from None
    if isinstance(size_bytes, bool) or not isinstance(size_bytes, int):
        raise wrong(name, given, 'it must be an integer, or text with a unit such as "32MiB"')
    if not least <= size_bytes <= most:
        raise wrong(name, given, f"it must be from {least} to {most} bytes")
    return size_bytes


def check_choice(name: str, given: object, choices: Collection[str]) -> None:
    """Raise INVALID_SETTING unless `given` is one of the choices."""
    if not isinstance(given, str) or given not in choices:
        raise wrong(name, given, f"it must be one of {', '.join(map(repr, choices))}")


def check_kind(name: str, given: object, *kinds: type) -> None:
    """Raise INVALID_SETTING unless `given` has one of these types."""
    if not isinstance(given, kinds):
        raise wrong(name, given, f"it must be {' or '.join(kind.__name__ for kind in kinds)}")


def check_callback(name: str, given: object, *, is_awaited: bool = False) -> None:
    """Raise INVALID_SETTING unless `given` is a function or None. Coroutine functions need `is_awaited`."""
    if given is not None and not callable(given):
        raise wrong(name, given, "it must be a function")
    if not is_awaited and getattr(getattr(given, "__code__", None), "co_flags", 0) & CO_COROUTINE:
        raise wrong(name, given, "it must be a function without async, because its result is not awaited")


# Names.


def as_names(name: str, given: object) -> list[str]:
    """Return one name or several as a list; raises INVALID_SETTING for other values."""
    if isinstance(given, bytes | bytearray) or not isinstance(given, Iterable):
        raise wrong(name, given, "it must be a string or an iterable of strings")
    names = [given] if isinstance(given, str) else list(given)
    for each in names:
        check_text(name, each, least=0, most=NAME_MAX)
    return names


def names_or_all(name: str, given: object) -> list[str] | None:
    """Return the names like `as_names`; None, which means all, stays None."""
    return None if given is None else as_names(name, given)


def named_topics(given: object) -> tuple[str, ...]:
    """Return one topic or several without repetitions; raises INVALID_SETTING or INVALID_TOPIC for other values."""
    names = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    for name in names:
        if not isinstance(name, str):
            raise wrong("topics", given, "it must be a topic name or several topic names")
        check_topic_name(name)
    return tuple(dict.fromkeys(names))


# Partitions.


def check_partitions(given: object, name: str = "partitions") -> None:
    """Raise INVALID_SETTING unless `given` has partition numbers or is None, which means all partitions."""
    if given is not None and (isinstance(given, str) or not isinstance(given, Iterable)):
        raise wrong(name, given, "it must be a list of partition numbers")
    for number in given or ():
        check_number(name, number, least=0, most=INT32_MAX)


def place(topic: str, partition: int) -> TopicPartition:
    """Return a checked topic and partition number, which need not exist; raises INVALID_TOPIC or INVALID_SETTING."""
    check_topic_name(topic)
    check_number("partition", partition, least=0, most=INT32_MAX)
    return TopicPartition(topic, partition)


def as_places(name: str, given: object) -> list[TopicPartition]:
    """Return checked partitions, each given as a pair of topic and partition number."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise wrong(name, given, "it must be a list of partitions, each a topic and a number")
    checked: set[str] = set()
    found: list[TopicPartition] = []
    for each in given:
        if not isinstance(each, tuple) or len(each) != 2:
            raise wrong(name, each, "a partition must be a topic and a number")
        topic, number = each
        # Each topic name is checked once: a topic may have thousands of partitions.
        if type(topic) is not str or topic not in checked or type(number) is not int or not 0 <= number <= INT32_MAX:
            checked.add(place(topic, number).topic)
        found.append(each if isinstance(each, TopicPartition) else TopicPartition(topic, number))
    return found


def by_place(name: str, given: Mapping[Any, V]) -> dict[TopicPartition, V]:
    """Return a mapping with checked partitions as keys."""
    check_kind(name, given, Mapping)
    return dict(zip(as_places(name, given), given.values(), strict=True))


def offsets_by_place(name: str, given: Mapping[Any, int], least: int = 0) -> dict[TopicPartition, int]:
    """Return a mapping of checked partitions to checked offsets."""
    found = by_place(name, given)
    for where, offset in found.items():
        if type(offset) is not int or not least <= offset <= INT64_MAX:
            check_number(f"offset of {where}", offset, least=least, most=INT64_MAX)
    return found
