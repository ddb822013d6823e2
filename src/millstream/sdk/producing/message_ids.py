"""Message ids as users give them. A made id names a partition, and a retry under it goes there."""

from collections.abc import Iterable, Sequence
from typing import Any

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.message_id import MadeId, as_message_id, parse_message_id

Id = str | bytes | MadeId


def taken_id(given: Id, partition: int | None) -> tuple[bytes, int | None]:
    """The id, and where its message goes as far as that is decided; INVALID_MESSAGE_ID for what cannot be one."""
    own = as_message_id(given)
    parsed = parse_message_id(own)
    if not isinstance(parsed, MadeId):
        return own, partition
    if partition is not None and partition != parsed.partition:
        text = f"{parsed} belongs to partition {parsed.partition}, not to {partition}"
        raise MillstreamError(ErrorCode.INVALID_MESSAGE_ID, text)
    return own, parsed.partition


def as_column(given: Any, name: str) -> list[Any]:
    """What is given for each of many messages; TypeError for what is only one thing, letters and bytes included."""
    if isinstance(given, str | bytes | bytearray | memoryview) or not isinstance(given, Iterable):
        raise TypeError(f"{name} are a column, a list for example, not {type(given).__name__}")
    return list(given)


def taken_ids(
    given: Sequence[Id | None], partition: Sequence[int | None] | int | None
) -> tuple[list[bytes | None], list[int | None] | None]:
    """As `taken_id`, for a column of them; None where a message has none."""
    given = as_column(given, "message_ids")
    chosen = [partition] * len(given) if partition is None or isinstance(partition, int) else list(partition)
    if len(chosen) != len(given):
        text = f"there are {len(given)} message_ids but {len(chosen)} partitions"
        raise MillstreamError(ErrorCode.INVALID_REQUEST, text)
    pairs = [
        (None, where) if each is None else taken_id(each, where) for each, where in zip(given, chosen, strict=True)
    ]
    partitions = [where for _, where in pairs]
    return [own for own, _ in pairs], partitions if any(where is not None for where in partitions) else None
