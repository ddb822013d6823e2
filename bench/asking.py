"""A connection that asks a broker one thing after another, or several at once, for what the load tools do not do."""

import socket
from collections.abc import Sequence

from penstock.wire.framing import SIZE, SIZE_BYTES, frame_request, read_response_header
from penstock.wire.messages import key_of, read_response, write_request
from penstock.wire.reader import Fields

TIMEOUT_S = 120.0


class Asking:
    """Close it, or leave it open: an open one that asks nothing is an idle client."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, api: str, version: int, fields: Fields) -> Fields:
        return self.ask_all(api, version, [fields])[0]

    def ask_all(self, api: str, version: int, requests: Sequence[Fields]) -> list[Fields]:
        """Send all of them, then take their answers, which come in the same order; ConnectionError when they do not."""
        for number, fields in enumerate(requests):
            body = write_request(api, version, fields)
            self._socket.sendall(b"".join(frame_request(api, key_of(api), version, number, "bench", [body])))
        answers = []
        for _ in requests:
            frame = self._frame()
            answers.append(read_response(api, version, frame, read_response_header(api, version, frame)[1]))
        return answers

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
    """The answer, unless it is an error: RuntimeError."""
    if answer["error_code"]:
        raise RuntimeError(f"{what} was refused with error {answer['error_code']}")
    return answer
