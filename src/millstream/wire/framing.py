"""Encodes and decodes frames: four bytes of size, a header and a body.

The header of a request is key, version, correlation id, client id and, in flexible versions, tags. The client id has a
two-byte length in every version. The header of a response is the correlation id and, in flexible versions, tags. The
response to ApiVersions never has header tags, because a client reads it before it knows the broker's versions.
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
"""A piece of a response: bytes, or a part of a file."""

SIZE = Struct(">i")
SIZE_BYTES = SIZE.size
_REQUEST_START = Struct(">hhi")
_SIZE_AND_CORRELATION = Struct(">ii")
_SIZE_AND_CORRELATION_AND_TAGS = Struct(">iib")
_CORRELATION = Struct(">i")

API_VERSIONS = "ApiVersions"


def read_request_header(frame: memoryview, flexible: bool) -> tuple[str | None, int]:
    """Return the client id and the position of the body."""
    source = FrameReader(frame, _REQUEST_START.size, elements_max=100)
    client_id = source.string(compact=False)
    if flexible:
        source.skip_tags()
    return client_id, source.position


def frame_request(
    api: str, key: int, *, version: int, correlation_id: int, client_id: str | None, body: Sequence[Buffer]
) -> list[Buffer]:
    """Return a whole request as pieces to send in order, without copying the body."""
    header = bytearray(_REQUEST_START.pack(key, version, correlation_id))
    put_string(header, client_id, compact=False)
    if is_flexible(api, version):
        header.append(0)
    size = len(header) + sum(map(len, body))
    return [SIZE.pack(size) + header, *body]


def frame_response(correlation_id: int, flexible_header: bool, body_bytes: int) -> bytes:
    """Return the size and header of a response whose body has `body_bytes` bytes."""
    if flexible_header:
        return _SIZE_AND_CORRELATION_AND_TAGS.pack(body_bytes + 5, correlation_id, 0)
    return _SIZE_AND_CORRELATION.pack(body_bytes + 4, correlation_id)


def has_flexible_response_header(api: str, version: int) -> bool:
    return api != API_VERSIONS and is_flexible(api, version)


def read_response_header(api: str, version: int, frame: memoryview) -> tuple[int, int]:
    """Return the correlation id of a response (a frame without its size) and the position of its body."""
    source = FrameReader(frame, 0, elements_max=100)
    correlation_id = source.int32()
    if has_flexible_response_header(api, version):
        source.skip_tags()
    return correlation_id, source.position


def read_correlation_id(frame: Buffer) -> int:
    """Return the correlation id, by which a client finds the request of a response."""
    try:
        correlation_id: int = _CORRELATION.unpack_from(frame)[0]
    except error:
        raise MalformedMessageError(f"a frame of {len(frame)} bytes is too short for a response") from None
    return correlation_id
