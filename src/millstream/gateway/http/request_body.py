"""Receives request bodies: limits their size, counts them as held memory and decompresses them."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from millstream.gateway.budget import Share
from millstream.gateway.failures import TitledError
from millstream.gateway.http.web_request import MalformedBodyError
from millstream.model.errors import ErrorCode, MillstreamError

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

_UNPACK_HERE_BYTES_MAX = 4 * 1024


class GoneError(Exception):
    """The client disconnected before the whole request arrived."""


class Body:
    """A request's body, counted in the request's share of the budget."""

    __slots__ = ("_most_bytes", "_share", "size_bytes")

    def __init__(self, share: Share, most_bytes: int) -> None:
        self._share = share
        self._most_bytes = most_bytes
        self.size_bytes = 0
        """Bytes received so far."""

    async def receive(self, receive: Receive, declared: bytes, encoding: bytes) -> bytes:
        """Receive the whole body. Raises MESSAGE_TOO_LARGE, GATEWAY_FULL, or GoneError if the client disconnects."""
        if declared.isdigit() and int(declared) > self._most_bytes:
            raise self._too_large(f"a body of {declared.decode()} bytes")
        data, has_more = await self._part(receive)
        if has_more:
            parts = [data]
            while has_more:
                data, has_more = await self._part(receive)
                parts.append(data)
            data = b"".join(parts)
        if encoding and encoding != b"identity":
            return await self._unpacked(data, encoding)
        return data

    async def _part(self, receive: Receive) -> tuple[bytes, bool]:
        """Return the next part of the body, and True if more parts follow."""
        message = await receive()
        if message["type"] == "http.disconnect":
            raise GoneError
        data: bytes = message.get("body", b"")
        self._share.take(len(data))
        self.size_bytes += len(data)
        if self.size_bytes > self._most_bytes:
            raise self._too_large("the body")
        return data, message.get("more_body", False)

    async def _unpacked(self, data: bytes, encoding: bytes) -> bytes:
        if encoding != b"gzip":
            text = f"Content-Encoding {encoding.decode('latin-1')} is not supported (accepted: gzip, identity)"
            title = "the content encoding is not supported"
            raise TitledError(ErrorCode.INVALID_REQUEST, text, "Content-Encoding", title=title)
        if len(data) > _UNPACK_HERE_BYTES_MAX:
            unpacked = await asyncio.to_thread(self._gunzip, data)
        else:
            unpacked = self._gunzip(data)
        self._share.take(len(unpacked))
        return unpacked

    def _gunzip(self, data: bytes) -> bytes:
        """Decompress at most the size limit, which stops decompression bombs."""
        unpacker = zlib.decompressobj(31)
        try:
            unpacked = unpacker.decompress(data, self._most_bytes + 1)
        except zlib.error as error:
            raise MalformedBodyError(f"the body is not valid gzip: {error}") from None
        if len(unpacked) > self._most_bytes:
            raise self._too_large("the decompressed body")
        if not unpacker.eof:
            raise MalformedBodyError("the body is incomplete gzip: it ends too early")
        return unpacked

    def _too_large(self, what: str) -> MillstreamError:
        text = f"{what} exceeds {self._most_bytes} bytes, the limit of this gateway (setting body_bytes_max)"
        return TitledError(ErrorCode.MESSAGE_TOO_LARGE, text, "body", title="the request body is too large")
