"""Bodies on their way in: bounded, counted, and unpacked."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from millstream.gateway.budget import Share
from millstream.gateway.failures import FieldError
from millstream.gateway.http.web_request import MalformedBodyError
from millstream.model.errors import ErrorCode, MillstreamError

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

_UNPACK_HERE_BYTES_MAX = 4 * 1024


class GoneError(Exception):
    """The caller went away before all of the request had come."""


class Body:
    """A request's body, which counts against the request's share."""

    __slots__ = ("_most_bytes", "_share", "size_bytes")

    def __init__(self, share: Share, most_bytes: int) -> None:
        self._share = share
        self._most_bytes = most_bytes
        self.size_bytes = 0
        """What has come of it."""

    async def receive(self, receive: Receive, declared: bytes, encoding: bytes) -> bytes:
        """All of it; MESSAGE_TOO_LARGE, GATEWAY_FULL, or GoneError when it does not come whole."""
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
        """A part of it, and whether there is more."""
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
            text = f"a body is taken as it is or as gzip, not as {encoding.decode('latin-1')}"
            raise FieldError(ErrorCode.INVALID_REQUEST, text, "Content-Encoding")
        if len(data) > _UNPACK_HERE_BYTES_MAX:
            unpacked = await asyncio.to_thread(self._gunzip, data)
        else:
            unpacked = self._gunzip(data)
        self._share.take(len(unpacked))
        return unpacked

    def _gunzip(self, data: bytes) -> bytes:
        """Never more than a body may have, however much a small one would become."""
        unpacker = zlib.decompressobj(31)
        try:
            unpacked = unpacker.decompress(data, self._most_bytes + 1)
        except zlib.error as error:
            raise MalformedBodyError(f"the body is no gzip: {error}") from None
        if len(unpacked) > self._most_bytes:
            raise self._too_large("a body that is unpacked")
        if not unpacker.eof:
            raise MalformedBodyError("the body is no whole gzip: it ends too early")
        return unpacked

    def _too_large(self, what: str) -> MillstreamError:
        text = f"{what} is larger than {self._most_bytes} bytes, which is the most that this gateway takes at once"
        return FieldError(ErrorCode.MESSAGE_TOO_LARGE, text, "body")
