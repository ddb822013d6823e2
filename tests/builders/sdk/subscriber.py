"""Provides a subscriber at the wire level: frames over a socket, matched by correlation id."""

from collections import deque
from typing import Any

from builders.requests import RawPeer, request_frame
from millstream.records.batch import decode_batches
from millstream.wire.framing import read_correlation_id, read_response_header
from millstream.wire.messages import read_response
from millstream.wire.schema_readers import Fields

Positions = dict[str, dict[int, int]]
"""Offsets by topic name and partition number."""


class Subscriber:
    """One connection with several subscriptions; frames of other subscriptions are kept until they are requested."""

    def __init__(self, peer: RawPeer, first_id: int = 100) -> None:
        self.peer = peer
        self._next_id = first_id
        self._frames: dict[int, deque[memoryview]] = {}

    def send(self, api: str, fields: Fields, version: int = 0) -> int:
        """Send a request and return its correlation id, without waiting for the response."""
        self._next_id += 1
        self.peer.send(request_frame(api, version, fields, correlation_id=self._next_id))
        return self._next_id

    async def answer(self, api: str, correlation_id: int, version: int = 0) -> Fields:
        """Return the next frame with this correlation id."""
        frames = self._frames.setdefault(correlation_id, deque())
        while not frames:
            await self.take_frame()
        frame = frames.popleft()
        return read_response(api, version, frame, read_response_header(api, version, frame)[1])

    async def take_frame(self) -> int:
        """Receive and keep the next frame; returns its correlation id."""
        frame = await self.peer.frame()
        correlation_id = read_correlation_id(frame)
        self._frames.setdefault(correlation_id, deque()).append(frame)
        return correlation_id

    async def ask(self, api: str, fields: Fields, version: int = 0) -> Fields:
        return await self.answer(api, self.send(api, fields, version), version)

    async def subscribe(self, positions: Positions, **options: Any) -> "Subscribed":
        """Subscribe, and assert that the response has no error."""
        correlation_id = self.send("Subscribe", {"topics": wanted(positions), **options})
        answer = await self.answer("Subscribe", correlation_id)
        assert answer["error_code"] == 0, answer
        return Subscribed(self, correlation_id, answer)


class Subscribed:
    """One subscription and its received messages."""

    def __init__(self, subscriber: Subscriber, correlation_id: int, answer: Fields) -> None:
        self.id = correlation_id
        self.begins = {(row["topic"], row["partition"]): row["position"] for row in answer["partitions"]}
        self.refused = {
            (row["topic"], row["partition"]): row["error_code"] for row in answer["partitions"] if row["error_code"]
        }
        self.values: list[bytes | None] = []
        self.sent = dict(self.begins)
        self._subscriber = subscriber

    async def delivery(self) -> Fields:
        """Return the next delivery."""
        frame = await self._subscriber.answer("Subscribe", self.id)
        for row in frame["partitions"]:
            if row["error_code"]:
                continue
            assert row["position"] >= self.sent[row["topic"], row["partition"]]
            self.sent[row["topic"], row["partition"]] = row["next_offset"]
            records = decode_batches(bytes(row["records"] or b""))
            self.values += [record.value for record in records if record.offset >= row["position"]]
        return frame

    async def receive(self, count: int) -> list[bytes | None]:
        """Receive deliveries until there are `count` messages in all."""
        while len(self.values) < count:
            await self.delivery()
        return self.values

    def commit_fields(self, positions: Positions | None = None, **options: Any) -> Fields:
        if positions is None:
            positions = {}
            for (topic, partition), offset in self.sent.items():
                positions.setdefault(topic, {})[partition] = offset
        return {"subscription_id": self.id, "topics": wanted(positions), **options}

    async def commit(self, positions: Positions | None = None, **options: Any) -> list[int]:
        """Commit these positions, or everything received; returns the error code of each partition."""
        answer = await self._subscriber.ask("SubscriptionCommit", self.commit_fields(positions, **options))
        assert answer["error_code"] == 0, answer
        return [row["error_code"] for topic in answer["topics"] for row in topic["partitions"]]


def wanted(positions: Positions) -> list[Fields]:
    return [
        {"name": name, "partitions": [{"partition": number, "offset": at} for number, at in partitions.items()]}
        for name, partitions in positions.items()
    ]
