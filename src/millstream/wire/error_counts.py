"""Counts the error codes in encoded responses, by API, in one table for the whole process.

The writers of responses know which fields are error codes. They count each code other than 0 when they encode it, so
successes cost nothing and no response is decoded again. Like Kafka's error metric, a response with several failed rows
counts each of them. Encoded rows that are kept and sent several times are not counted by their writer: the sender
counts them with `count_errors`.

A process runs one broker, so the table is not divided by broker. In tests, all brokers of the process share it.
"""

from collections.abc import Callable, Mapping

_counts: dict[str, dict[int, int]] = {}

CountError = Callable[[int], None]
"""Counts one error code of an API."""


def error_counter(api: str) -> CountError:
    """Return the function that counts the errors of an API."""
    counts = _counts.setdefault(api, {})

    def count(number: int) -> None:
        counts[number] = counts.get(number, 0) + 1

    return count


def count_errors(api: str, number: int, *, count: int) -> None:
    """Count errors that are sent in kept bytes."""
    counts = _counts.setdefault(api, {})
    counts[number] = counts.get(number, 0) + count


def error_counts() -> Mapping[str, Mapping[int, int]]:
    """Return the number of sent errors by API and error code. The result is a copy."""
    return {api: dict(counts) for api, counts in _counts.items() if counts}
