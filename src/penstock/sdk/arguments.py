"""What users say, held against what brokers can be told: INVALID_SETTING names the argument and what is wrong."""

from collections.abc import Iterable, Mapping, Sequence

from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.names import TopicPartition, check_topic_name

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
NAME_MAX = 8191
"""So many characters have room in a string of the protocol, whatever they are; brokers may allow fewer, and say so."""


def check_text(name: str, given: object, least: int, most: int, code: ErrorCode = ErrorCode.INVALID_SETTING) -> None:
    """INVALID_SETTING, or what brokers call it, for what cannot be said to one: no text, not so many characters, or
    half a character."""
    if not isinstance(given, str):
        problem = "it must be str"
    elif not least <= len(given) <= most:
        problem = f"it has {len(given)} characters, {least} to {most} are allowed"
    elif any("\ud800" <= each <= "\udfff" for each in given):
        problem = "it cannot be written as UTF-8"
    else:
        return
    shown = repr(given) if len(repr(given)) < 60 else f"{repr(given)[:60]}..."
    raise PenstockError(code, f"{name}={shown}: {problem}")


def check_number(name: str, given: object, least: int, most: int) -> None:
    """INVALID_SETTING for what is no whole number, or none within these bounds."""
    if isinstance(given, bool) or not isinstance(given, int):
        raise PenstockError(ErrorCode.INVALID_SETTING, f"{name}={given!r}: it must be a whole number")
    if not least <= given <= most:
        raise PenstockError(ErrorCode.INVALID_SETTING, f"{name}={given!r}: {least} to {most} are possible")


def check_partitions(given: object) -> None:
    """INVALID_SETTING for what is no choice of partitions; None is all of them."""
    if given is not None and (isinstance(given, str) or not isinstance(given, Iterable)):
        raise PenstockError(ErrorCode.INVALID_SETTING, f"partitions={given!r}: numbers of partitions are expected")
    for number in given or ():
        check_number("partitions", number, 0, INT32_MAX)


def named_topics(given: object) -> tuple[str, ...]:
    """A topic, or several, each once; INVALID_SETTING or INVALID_TOPIC for what names none."""
    names = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    for name in names:
        if not isinstance(name, str):
            raise PenstockError(ErrorCode.INVALID_SETTING, f"topics={given!r}: names of topics are expected")
        check_topic_name(name)
    return tuple(dict.fromkeys(names))


def one_or_more(names: str | Sequence[str] | None) -> Sequence[str] | None:
    """A name by itself is one name, and no sequence of letters."""
    return [names] if isinstance(names, str) else names


def check_callback(name: str, given: object) -> None:
    """INVALID_SETTING for what cannot be called; None stands for no callback."""
    if given is not None and not callable(given):
        raise PenstockError(ErrorCode.INVALID_SETTING, f"{name}={given!r}: a function is expected")


def check_offsets(given: Mapping[TopicPartition, int]) -> None:
    """INVALID_SETTING for what is no place to go on at."""
    for where, offset in given.items():
        check_number(f"offset of {where}", offset, 0, INT64_MAX)
