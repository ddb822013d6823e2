"""Defines the errors of writes, and classifies which errors leave the outcome unknown."""

from collections.abc import Sequence
from typing import Final

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.connection.connection import ConnectionLostError
from millstream.sdk.responses import NotLeaderError

TOO_LARGE: Final = frozenset((ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE))
IDENTITY_REFUSED: Final = frozenset(
    (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH)
)
_PERHAPS_STORED = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,  # A leader may append a batch, lose its leadership and then return this.
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.SHUTTING_DOWN,
    )
)


class OutcomeUnknownError(MillstreamError):
    """The outcome of a write is unknown: no conclusive answer arrived in time, so it may or may not be stored.

    To settle it, put the message again with `message_id=receipt.message_id`. The code is REQUEST_TIMED_OUT, or
    KAFKA_STORAGE_ERROR after a disk error of the broker. A disk error is inconclusive: the broker returns it if nothing
    was written, and also if the written data could not be flushed.
    """

    def __init__(self, where: TopicPartition, error: MillstreamError, *, unanswered: bool) -> None:
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR and not unanswered:
            text = f"{where}: the broker reported a disk error; it is not known whether an attempt was stored"
            super().__init__(error.code, f"{text}: {error.detail}")
        else:
            super().__init__(ErrorCode.REQUEST_TIMED_OUT, f"{where}: it is not known whether it was stored: {error}")


def perhaps_stored(error: MillstreamError) -> bool:
    """Return True if a batch that was sent and failed with this error may have been stored."""
    if isinstance(error, NotLeaderError) and error.not_appended:
        return False
    return isinstance(error, ConnectionLostError) or error.code in _PERHAPS_STORED


def unconfirmed(count: int) -> str:
    """Return the text that `count` messages were not confirmed."""
    return "1 message was not confirmed" if count == 1 else f"{count} messages were not confirmed"


class UnstoredError(MillstreamError):
    """Messages whose receipts were not read are not confirmed: `count` in all, of which `in_doubt` may be stored."""

    def __init__(self, failures: Sequence[tuple[int, MillstreamError]]) -> None:
        self.count = sum(count for count, _ in failures)
        self.in_doubt = sum(count for count, error in failures if isinstance(error, OutcomeUnknownError))
        first = failures[0][1]
        text = unconfirmed(self.count)
        if self.in_doubt == self.count:
            text += ", but may have been stored"
        elif self.in_doubt:
            text += f", {self.in_doubt} of which may have been stored"
        super().__init__(first.code, f"{text}; the first: {first.detail}")
