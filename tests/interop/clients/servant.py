"""Drives clients in other languages: one process of each executes orders from its standard input.

An order is a line of JSON with the operation under "do" and its operands; bytes are Base64 or null. The answer is one
line, {"answer": ...} or {"refused": NUMBER, "text": ...}. Nothing else may be written to standard output. A process
serves many tests, because its start takes longer than most of them, and many brokers: each order names its broker.
"""

import base64
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from bench.servant import Process

from interop.clients.client import (
    EAGER,
    TIMEOUT_S,
    AdminClient,
    GroupView,
    Member,
    Message,
    Received,
    RefusedError,
    Stored,
    Stream,
    ToldSetting,
)

_PATIENCE_S = 3 * TIMEOUT_S


class Servant(Process):
    """The process of a client; raises RefusedError for a refused order."""

    def ask(self, command: Sequence[str], order: Mapping[str, Any]) -> Any:
        """Execute one order; RefusedError if the broker refused it."""
        answer = self.give(command, order, _PATIENCE_S)
        if "refused" in answer:
            raise RefusedError(answer["refused"], answer["text"])
        return answer["answer"]


class ServantClient(AdminClient):
    """A client in another language, defined by its name and the command that starts it."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.servant = Servant()

    @abstractmethod
    def command(self) -> Sequence[str]:
        """Return the command line of the process."""

    def ask(self, do: str, **operands: Any) -> Any:
        return self.servant.ask(self.command(), {"do": do, "bootstrap": self.bootstrap, **operands})

    def close(self) -> None:
        self.servant.close()

    def write(
        self,
        topic: str,
        partition: int,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        idempotent: bool = False,
    ) -> list[int]:
        offsets: list[int] = self.ask(
            "write",
            topic=topic,
            partition=partition,
            messages=[_outward(message) for message in messages],
            compression=compression,
            idempotent=idempotent,
        )
        return offsets

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Stored]:
        return [_stored(row) for row in self.ask("read", topic=topic, partition=partition, offset=offset, count=count)]

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        first, following = self.ask("ends", topic=topic, partition=partition)
        return first, following

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        offset: int = self.ask("time", topic=topic, partition=partition, timestamp=timestamp_ms)
        return offset if offset >= 0 else None

    def topics(self) -> Mapping[str, int]:
        found: dict[str, int] = self.ask("topics")
        return found

    def join(self, group: str, topic: str, protocol: str = EAGER) -> Member:
        return ServedMember(self, self.ask("join", group=group, topic=topic, protocol=protocol))

    def stream(self, topic: str) -> Stream:
        return ServedStream(self, self.ask("open stream", topic=topic))

    def create_topic(
        self, name: str, partitions: int, *, replication_factor: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        self.ask(
            "create", topic=name, partitions=partitions, replication=replication_factor, settings=dict(settings or {})
        )

    def delete_topic(self, name: str) -> None:
        self.ask("delete", topic=name)

    def grow(self, topic: str, total: int) -> None:
        self.ask("grow", topic=topic, total=total)

    def settings(self, topic: str) -> Mapping[str, ToldSetting]:
        return {name: ToldSetting(*pair) for name, pair in self.ask("settings", topic=topic).items()}

    def alter(self, topic: str, settings: Mapping[str, str]) -> None:
        self.ask("alter", topic=topic, settings=dict(settings))

    def delete_records(self, topic: str, partition: int, before: int) -> int | None:
        begin: int | None = self.ask("delete records", topic=topic, partition=partition, before=before)
        return begin

    def groups(self) -> set[str]:
        return set(self.ask("groups"))

    def describe_group(self, group: str) -> GroupView:
        found = self.ask("describe group", group=group)
        return GroupView(found["state"].lower(), found["members"])

    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        return {int(number): offset for number, offset in self.ask("committed", group=group, topic=topic).items()}

    def reset_group(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        self.ask("reset group", group=group, topic=topic, offsets={str(at): offset for at, offset in offsets.items()})

    def delete_group(self, group: str) -> None:
        self.ask("delete group", group=group)


class ServedMember(Member):
    def __init__(self, client: ServantClient, number: int) -> None:
        self._client = client
        self._number = number
        self._left = False

    def assigned(self) -> frozenset[int]:
        return frozenset(self._client.ask("assigned", member=self._number))

    def received(self) -> list[Received]:
        rows = self._client.ask("received", member=self._number)
        return [Received(partition, offset, _bytes(value)) for partition, offset, value in rows]

    def commit(self) -> None:
        self._client.ask("commit", member=self._number)

    def leave(self) -> None:
        if not self._left:
            self._left = True
            self._client.ask("leave", member=self._number)


class ServedStream(Stream):
    def __init__(self, client: ServantClient, number: int) -> None:
        self._client = client
        self._number = number

    def send(self, messages: Sequence[Message]) -> None:
        self._client.ask("send", stream=self._number, messages=[_outward(message) for message in messages])

    def close(self) -> None:
        self._client.ask("close stream", stream=self._number)


def _text(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _outward(message: Message) -> Mapping[str, Any]:
    return {
        "timestamp": message.timestamp_ms,
        "key": _text(message.key),
        "value": _text(message.value),
        "headers": [[name, _text(content)] for name, content in message.headers],
    }


def _stored(row: Mapping[str, Any]) -> Stored:
    headers = tuple((name, _bytes(content)) for name, content in row["headers"])
    return Stored(row["offset"], Message(_bytes(row["value"]), _bytes(row["key"]), headers, row["timestamp"]))
