"""Implements a client from the wire protocol alone: a socket, frames and `calls`, without Millstream's code."""

import itertools
import socket
import struct
from types import TracebackType
from typing import Any, Protocol, Self

from interop.wire_alone.batches import Stored, batch, stored
from interop.wire_alone.calls import CREATE_TOPICS, FETCH, PUTS, Call, fetch_from
from interop.wire_alone.fields import Source, encode

TIMEOUT_S = 60.0
_names = itertools.count()

Fields = dict[str, Any]


class Broker(Protocol):
    """The part of a broker process's interface that these tests need."""

    port: int

    def kill(self) -> None: ...
    def start(self) -> object: ...


class Connection:
    """One connection; answers are matched by correlation id, and answers to other requests are kept."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._ids = itertools.count(1)
        self._kept: list[tuple[int, bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def send(self, call: Call, fields: Fields) -> int:
        """Send a request without waiting, and return its correlation id."""
        correlation_id = next(self._ids)
        head = struct.pack(">hhih", call.key, call.version, correlation_id, -1) + b"\0"  # No client id, no tags.
        body = head + encode(call.request, fields)
        self._socket.sendall(struct.pack(">i", len(body)) + body)
        return correlation_id

    def receive(self, call: Call, correlation_id: int) -> Fields:
        """Return the next answer with this correlation id; ConnectionError if the broker closes the connection."""
        while True:
            for place, (found, frame) in enumerate(self._kept):
                if found == correlation_id:
                    del self._kept[place]
                    return _answer(call, frame)
            frame = self._take(*struct.unpack(">i", self._take(4)))
            self._kept.append((struct.unpack_from(">i", frame)[0], frame))

    def ask(self, call: Call, **fields: Any) -> Fields:
        return self.receive(call, self.send(call, fields))

    def has_kept(self, correlation_id: int) -> bool:
        """True if an answer with this correlation id arrived while another one was awaited."""
        return any(found == correlation_id for found, _ in self._kept)

    def _take(self, size_bytes: int) -> bytes:
        data = b""
        while len(data) < size_bytes:
            piece = self._socket.recv(size_bytes - len(data))
            if not piece:
                raise ConnectionError("the broker has closed the connection")
            data += piece
        return data

    # Operations that most tests need.

    def create_topic(self, partitions: int = 1) -> str:
        """Create a topic with a unique name."""
        name = f"alone-{next(_names)}"
        wanted = {"name": name, "partitions": partitions, "replicas": -1, "assignments": [], "settings": []}
        answer = self.ask(CREATE_TOPICS, topics=[wanted], timeout_ms=30_000, validate_only=False)
        assert answer["topics"][0]["error_code"] == 0
        return name

    def put(
        self,
        topic: str,
        *values: bytes,
        partition: int = 0,
        by_hash: int = 0,
        ids: list[bytes] | None = None,
        producer: tuple[int, int, int] = (-1, -1, -1),
    ) -> Fields:
        """Put one batch and return its result."""
        records = batch(*values, ids=ids, producer=producer)
        entry = {"partition": partition, "hash": by_hash, "records": records, "message_ids": ids}
        topics = [{"name": topic, "entries": [entry]}]
        answer = self.ask(PUTS, acks=-1, timeout_ms=30_000, topics=topics)
        result: Fields = answer["topics"][0]["entries"][0]
        return result

    def stored(self, topic: str, partition: int = 0) -> list[Stored]:
        """Return all records of a partition."""
        found: list[Stored] = []
        while True:
            answer = self.ask(FETCH, **fetch_from(topic, partition, len(found)))
            row = answer["responses"][0]["partitions"][0]
            assert row["error_code"] == 0
            found += stored(row["records"])
            if len(found) >= row["high_watermark"]:
                return found


def _answer(call: Call, frame: bytes) -> Fields:
    source = Source(frame)
    source.take(4)
    if call.has_tags_in_header:
        source.skip_tags()
    fields: Fields = source.value(call.response)
    assert source.at == len(frame), "the answer has extra bytes"
    return fields
