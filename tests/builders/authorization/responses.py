"""Extracts the error codes of any response."""

from collections.abc import Iterator
from typing import Any

from millstream.catalog.catalog import Topic

_NAMES = ("name", "topic", "topic_name", "resource_name", "topic_id")


def error_codes(answer: Any) -> Iterator[int]:
    """Yield all error codes of a response except 0."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name == "error_code":
                yield from (value,) if value else ()
            else:
                yield from error_codes(value)
    elif isinstance(answer, list):
        for each in answer:
            yield from error_codes(each)


def errors_of(answer: Any, topic: Topic) -> set[int]:
    """Return the error codes, including 0, of the rows of a response that name this topic."""
    return set(_errors_of(answer, topic, False))


def _errors_of(answer: Any, topic: Topic, is_within: bool) -> Iterator[int]:
    if isinstance(answer, dict):
        is_within = is_within or any(answer.get(name) in (topic.name, topic.topic_id) for name in _NAMES)
        for name, value in answer.items():
            if name == "error_code" and is_within:
                yield value
            else:
                yield from _errors_of(value, topic, is_within)
    elif isinstance(answer, list):
        for each in answer:
            yield from _errors_of(each, topic, is_within)
