"""How writes fail, and which failures leave open whether something was stored."""

from collections.abc import Sequence
from typing import Final

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.connection.connection import ConnectionLostError

TOO_LARGE: Final = frozenset((ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE))
IDENTITY_REFUSED: Final = frozenset(
    (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH)
)
_PERHAPS_STORED = frozenset(
    (
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.SHUTTING_DOWN,
    )
)


class OutcomeUnknownError(MillstreamError):
    """The write may or may not have been stored: nobody has answered for it within the time, or not conclusively.

    A broker's disk error is inconclusive: the same number says that nothing was written, and that what was written
    could not be flushed. Its name is kept then; otherwise the name is REQUEST_TIMED_OUT.
    """

    def __init__(self, where: TopicPartition, error: MillstreamError, *, unanswered: bool) -> None:
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR and not unanswered:
            text = f"{where}: the broker's disk refused it; it is not known whether an attempt was stored all the same"
            super().__init__(error.code, f"{text}: {error.detail}")
        else:
            super().__init__(ErrorCode.REQUEST_TIMED_OUT, f"{where}: it is not known whether it was stored: {error}")


def perhaps_stored(error: MillstreamError) -> bool:
    """Whether what was answered with this error may have been stored."""
    return isinstance(error, ConnectionLostError) or error.code in _PERHAPS_STORED


def unconfirmed(count: int) -> str:
    """That so many messages were not, as a sentence."""
    return "1 message was not confirmed" if count == 1 else f"{count} messages were not confirmed"


class UnstoredError(MillstreamError):
    """Messages that nobody has asked after were not confirmed. `count` of them; `in_doubt` of these may be stored."""

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
