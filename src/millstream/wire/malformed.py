"""What every reader raises when a frame does not hold what it promises."""

from millstream.model.errors import ErrorCode, MillstreamError


class MalformedMessageError(MillstreamError):
    """The bytes are not a message of the version they claim; the connection cannot be trusted any further."""

    def __init__(self, detail: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, detail)
