"""Single requests over a socket of their own, to see exactly what a broker answers."""

import socket
import struct
from collections.abc import Mapping
from typing import Any

from penstock.wire.messages import is_flexible, key_of, read_response, write_request

TIMEOUT_S = 60.0
CORRELATION_ID = 77


def ask(host: str, port: int, api: str, version: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Send one request and read its answer."""
    with socket.create_connection((host, port), timeout=TIMEOUT_S) as connection:
        return Conversation(connection).ask(api, version, fields)


class Conversation:
    """Requests and answers on one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def ask(self, api: str, version: int, fields: Mapping[str, Any]) -> dict[str, Any]:
        self.send(
            header(key_of(api), version, flexible=is_flexible(api, version)) + write_request(api, version, dict(fields))
        )
        return self.answer(api, version)

    def send(self, frame: bytes) -> None:
        self._connection.sendall(struct.pack(">i", len(frame)) + frame)

    def send_bytes(self, content: bytes) -> None:
        self._connection.sendall(content)

    def answer(self, api: str, version: int) -> dict[str, Any]:
        """The next answer; EOFError when the broker has closed instead."""
        (size,) = struct.unpack(">i", self._receive(4))
        frame = self._receive(size)
        # The header of an answer to ApiVersions is the oldest in all versions.
        position = 5 if is_flexible(api, version) and api != "ApiVersions" else 4
        assert struct.unpack_from(">i", frame) == (CORRELATION_ID,)
        return dict(read_response(api, version, memoryview(frame), position))

    def _receive(self, count: int) -> bytes:
        received = b""
        while len(received) < count:
            piece = self._connection.recv(count - len(received))
            if not piece:
                raise EOFError("the broker closed the connection")
            received += piece
        return received


def header(key: int, version: int, *, flexible: bool, client_id: bytes = b"tests") -> bytes:
    """A request's header: the client's name keeps its old form when the rest is compact."""
    return struct.pack(">hhih", key, version, CORRELATION_ID, len(client_id)) + client_id + (b"\0" if flexible else b"")
