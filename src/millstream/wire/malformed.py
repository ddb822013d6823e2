"""Defines the error for a frame that is not a valid message."""

from millstream.model.errors import ErrorCode, MillstreamError


class MalformedMessageError(MillstreamError):
    """The bytes are not a message of their API and version. The connection must be closed."""

    def __init__(self, detail: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, detail)
