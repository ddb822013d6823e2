"""Sends single requests over separate sockets, to examine a broker's exact answers."""

import socket
from collections.abc import Mapping
from typing import Any

from builders.requests import request_frame
from millstream.wire.framing import SIZE, read_response_header
from millstream.wire.messages import read_response

TIMEOUT_S = 60.0
Fields = Mapping[str, Any]


def ask(host: str, port: int, api: str, version: int, fields: Fields) -> dict[str, Any]:
    """Send one request and read its answer."""
    (answer,) = converse(host, port, request_frame(api, version, dict(fields)), (api, version))
    return answer


def converse(host: str, port: int, content: bytes, *expected: tuple[str, int]) -> list[dict[str, Any]]:
    """Send any bytes on one connection and read the expected answers; EOFError if the broker closes instead."""
    with socket.create_connection((host, port), timeout=TIMEOUT_S) as connection:
        connection.sendall(content)
        return [_answer(connection, api, version) for api, version in expected]


def is_closed_after(host: str, port: int, content: bytes) -> bool:
    """True if the broker closes the connection after these bytes without an answer."""
    with socket.create_connection((host, port), timeout=TIMEOUT_S) as connection:
        connection.sendall(content)
        try:
            return not connection.recv(1)
        except ConnectionResetError:
            return True


def _answer(connection: socket.socket, api: str, version: int) -> dict[str, Any]:
    (size_bytes,) = SIZE.unpack(_receive(connection, SIZE.size))
    frame = memoryview(_receive(connection, size_bytes))
    _, position = read_response_header(api, version, frame)
    return dict(read_response(api, version, frame, position))


def _receive(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        try:
            piece = connection.recv(count - len(received))
        except ConnectionResetError:
            piece = b""
        if not piece:
            raise EOFError("the broker closed the connection")
        received += piece
    return received
