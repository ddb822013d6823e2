"""Frames and headers: four bytes of size, then a header that says what follows.

A request's header is (key, version, correlation id, client id, tags where the version is flexible); the client id keeps
its two-byte length in every version. An answer's header is (correlation id, tags where flexible), but the answer to
ApiVersions never has tags, because a client reads it before it knows what the broker speaks.
"""

from collections.abc import Sequence
from struct import Struct, error

from millstream.seams.file_part import FilePart
from millstream.wire.frame_reader import FrameReader
from millstream.wire.malformed import MalformedMessageError
from millstream.wire.messages import is_flexible
from millstream.wire.value_writers import put_string

Buffer = bytes | bytearray | memoryview
Piece = Buffer | FilePart
"""A piece of an answer: bytes, or where to find them."""

SIZE = Struct(">i")
SIZE_BYTES = SIZE.size
_REQUEST_START = Struct(">hhi")
_SIZE_AND_CORRELATION = Struct(">ii")
_SIZE_AND_CORRELATION_AND_TAGS = Struct(">iib")
_CORRELATION = Struct(">i")

API_VERSIONS = "ApiVersions"


def read_request_header(frame: memoryview, flexible: bool) -> tuple[str | None, int]:
    """The client id, and where the body begins."""
    source = FrameReader(frame, _REQUEST_START.size, elements_max=100)
    client_id = source.string(compact=False)
    if flexible:
        source.skip_tags()
    return client_id, source.position


def frame_request(
    api: str, key: int, version: int, correlation_id: int, client_id: str | None, body: Sequence[Buffer]
) -> list[Buffer]:
    """A whole request as pieces to be sent one after the other; the body is not copied."""
    header = bytearray(_REQUEST_START.pack(key, version, correlation_id))
    put_string(header, client_id, compact=False)
    if is_flexible(api, version):
        header.append(0)
    size = len(header) + sum(map(len, body))
    return [SIZE.pack(size) + header, *body]


def frame_response(correlation_id: int, flexible_header: bool, body_bytes: int) -> bytes:
    """Size and header of an answer whose body has `body_bytes`."""
    if flexible_header:
        return _SIZE_AND_CORRELATION_AND_TAGS.pack(body_bytes + 5, correlation_id, 0)
    return _SIZE_AND_CORRELATION.pack(body_bytes + 4, correlation_id)


def has_flexible_response_header(api: str, version: int) -> bool:
    return api != API_VERSIONS and is_flexible(api, version)


def read_response_header(api: str, version: int, frame: memoryview) -> tuple[int, int]:
    """The correlation id of an answer (a frame without its size), and where its body begins."""
    source = FrameReader(frame, 0, elements_max=100)
    correlation_id = source.int32()
    if has_flexible_response_header(api, version):
        source.skip_tags()
    return correlation_id, source.position


def read_correlation_id(frame: Buffer) -> int:
    """The correlation id alone: by it a client finds which request is answered."""
    try:
        correlation_id: int = _CORRELATION.unpack_from(frame)[0]
    except error:
        raise MalformedMessageError(f"a frame of {len(frame)} bytes has no room for an answer") from None
    return correlation_id
