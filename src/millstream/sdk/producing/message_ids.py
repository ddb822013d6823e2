"""Checks message ids that callers pass. A retry with a made id goes to the partition that the id contains."""

from collections.abc import Iterable, Sequence
from typing import Any

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.message_id import MadeId, as_message_id, parse_message_id

Id = str | bytes | MadeId


def checked_id(given: Id, partition: int | None) -> tuple[bytes, int | None]:
    """Return the checked id, and the message's partition if it is decided; raises INVALID_MESSAGE_ID."""
    own = as_message_id(given)
    parsed = parse_message_id(own)
    if not isinstance(parsed, MadeId):
        return own, partition
    if partition is not None and partition != parsed.partition:
        text = f"{parsed} belongs to partition {parsed.partition}, not to {partition}"
        raise MillstreamError(ErrorCode.INVALID_MESSAGE_ID, text)
    return own, parsed.partition


def as_column(given: Any, name: str) -> list[Any]:
    """Return one value per message as a list; raises TypeError for a single value, such as text or bytes."""
    if isinstance(given, str | bytes | bytearray | memoryview) or not isinstance(given, Iterable):
        raise TypeError(f"{name} must be a sequence, for example a list, not {type(given).__name__}")
    return list(given)


def checked_ids(
    given: Sequence[Id | None], partition: Sequence[int | None] | int | None
) -> tuple[list[bytes | None], list[int | None] | None]:
    """Check a column of ids like `checked_id`. None stands for a message without an id."""
    given = as_column(given, "message_ids")
    chosen = [partition] * len(given) if partition is None or isinstance(partition, int) else list(partition)
    if len(chosen) != len(given):
        text = f"there are {len(given)} message_ids but {len(chosen)} partitions"
        raise MillstreamError(ErrorCode.INVALID_REQUEST, text)
    pairs = [
        (None, where) if each is None else checked_id(each, where) for each, where in zip(given, chosen, strict=True)
    ]
    partitions = [where for _, where in pairs]
    return [own for own, _ in pairs], partitions if any(where is not None for where in partitions) else None
