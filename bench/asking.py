"""Provides a connection that sends requests to a broker, one by one or pipelined, which the load tools cannot send."""

import socket
from collections.abc import Sequence

from millstream.wire.fetch import FetchPartition
from millstream.wire.fetch_client import parse_fetch_response, write_fetch_request
from millstream.wire.framing import SIZE, SIZE_BYTES, frame_request, read_response_header
from millstream.wire.messages import key_of, read_response, write_request
from millstream.wire.schema_readers import Fields

TIMEOUT_S = 120.0
FETCH_VERSION = 11


class Asking:
    """A connection to a broker. An open connection without requests is an idle client."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, api: str, version: int, fields: Fields) -> Fields:
        return self.ask_all(api, version, [fields])[0]

    def ask_all(self, api: str, version: int, requests: Sequence[Fields]) -> list[Fields]:
        """Sends all requests, then returns their responses in the same order.

        Raises ConnectionError if the broker closes the connection.
        """
        bodies = [write_request(api, version, fields) for fields in requests]
        return [read_response(api, version, *answer) for answer in self._exchange(api, version, bodies)]

    def read_all(self, topic: str, offsets: Sequence[int], max_bytes: int) -> list[int]:
        """Reads at each of these offsets of partition 0; returns the number of bytes of each.

        Raises RuntimeError for an error code.
        """
        bodies = []
        for offset in offsets:
            wanted = FetchPartition(0, offset, max_bytes)
            bodies.append(write_fetch_request(FETCH_VERSION, [(topic, [wanted])], max_wait_ms=0))
        sizes = []
        for answer in self._exchange("Fetch", FETCH_VERSION, bodies):
            fetched = parse_fetch_response(FETCH_VERSION, *answer).topics[0][1][0]
            if fetched.error:
                raise RuntimeError(f"a read was refused with error {fetched.error}")
            sizes.append(len(fetched.records))
        return sizes

    def _exchange(self, api: str, version: int, bodies: Sequence[bytes]) -> list[tuple[memoryview, int]]:
        """Returns the frame of each response, and the position of its body."""
        for number, body in enumerate(bodies):
            self._socket.sendall(
                b"".join(
                    frame_request(
                        api, key_of(api), version=version, correlation_id=number, client_id="bench", body=[body]
                    )
                )
            )
        frames = [self._frame() for _ in bodies]
        return [(frame, read_response_header(api, version, frame)[1]) for frame in frames]

    def close(self) -> None:
        self._socket.close()

    def _frame(self) -> memoryview:
        (size,) = SIZE.unpack(self._receive(SIZE_BYTES))
        return memoryview(self._receive(size))

    def _receive(self, size: int) -> bytearray:
        data = bytearray(size)
        filled = 0
        while filled < size:
            count = self._socket.recv_into(memoryview(data)[filled:])
            if not count:
                raise ConnectionError("the broker closed the connection")
            filled += count
        return data


def check(answer: Fields, what: str) -> Fields:
    """Returns the response, or raises RuntimeError if it has an error code."""
    if answer["error_code"]:
        raise RuntimeError(f"{what} was refused with error {answer['error_code']}")
    return answer
