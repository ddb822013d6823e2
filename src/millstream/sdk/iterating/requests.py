"""The requests of clients of iterators, with answers as plain values."""

from collections.abc import Callable
from typing import Any, NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.records.batch import decode_messages
from millstream.records.message import Message
from millstream.sdk.connection.address import Address
from millstream.sdk.responses import refusal
from millstream.wire.client_connection import Api, ApiRequest
from millstream.wire.framing import Buffer
from millstream.wire.messages import read_response, write_request

JOIN, HEARTBEAT, LEAVE = (
    Api(1010, "IteratorJoin", 0, 0),
    Api(1011, "IteratorHeartbeat", 0, 0),
    Api(1012, "IteratorLeave", 0, 0),
)
GET, LIST = Api(1013, "GetIterator", 0, 0), Api(1014, "ListIterators", 0, 0)
READ, COMMIT = Api(1015, "ReadIterator", 0, 0), Api(1016, "CommitIterator", 0, 0)
DELIVER = Api(1017, "DeliverIterator", 0, 0)

BEGINNING, END = -2, -1
HANDED = -1
"""The count of a commit that covers what was handed on."""


class IteratorMembership(NamedTuple):
    """A client in its group: what it may get iterators of."""

    generation: int
    is_settled: bool
    """Whether it has what it is to have; the group is sharing out otherwise."""
    heartbeat_s: float
    session_s: float
    owned: tuple[TopicPartition, ...]


class GroupIterator(NamedTuple):
    """The right to read some messages of a partition for a group; `token` is what brokers know it by."""

    topic: str
    partition: int
    offset: int
    """Where it begins; -2 at the beginning of the log, -1 at its end."""
    max_messages: int
    generation: int
    server: Address
    token: bytes

    def __repr__(self) -> str:
        place = {BEGINNING: "the beginning", END: "the end"}.get(self.offset, self.offset)
        return f"<iterator of {self.topic}-{self.partition} from {place}, generation {self.generation}>"


class IteratorBatch(NamedTuple):
    """What an iterator gave: its messages, what to commit, and the next one, which is None after a rebalance."""

    iterator: GroupIterator
    messages: list[Message]
    end_offset: int
    following: GroupIterator | None

    def places(self, read: int | None = None) -> int:
        """What so many messages count in a commit, or all (None): the places in the log up to the next message, which
        are more than the messages where some were removed. INVALID_REQUEST for more than there are."""
        if read is not None and read > len(self.messages):
            text = f"{read} messages cannot have been read of a batch of {len(self.messages)}"
            raise MillstreamError(ErrorCode.INVALID_REQUEST, text)
        if read is None or read == len(self.messages):
            return self.end_offset - self.iterator.offset
        return (self.messages[read].offset - self.iterator.offset) if read > 0 else 0


class IteratorCommit(NamedTuple):
    position: int
    following: GroupIterator | None


class ListedIterator(NamedTuple):
    """An iterator in flight, as the coordinator tells of it; the iterator itself only to whose it is, to whom it also
    tells of what was handed on and can still be committed: `left_s` is 0 where its time is over."""

    client_id: str
    where: TopicPartition
    offset: int
    generation: int
    left_s: float
    handed: int = 0
    """How many places of the log, from its offset on, were handed on."""
    iterator: GroupIterator | None = None


def _request(api: Api, fields: dict[str, Any], what: str, decode: Callable[[dict[str, Any]], Any]) -> ApiRequest[Any]:
    def read(version: int, frame: memoryview, start: int) -> Any:
        answer = read_response(api.name, version, frame, start)
        if answer["error_code"]:
            return refusal(answer["error_code"], what, answer["error_message"])
        return decode(answer)

    return ApiRequest(api, lambda version: [write_request(api.name, version, fields)], read)


def join(group_id: str, client_id: str) -> ApiRequest[IteratorMembership]:
    return _request(JOIN, {"group_id": group_id, "client_id": client_id}, f"joining group {group_id!r}", _membership)


def heartbeat(group_id: str, client_id: str) -> ApiRequest[IteratorMembership]:
    return _request(HEARTBEAT, {"group_id": group_id, "client_id": client_id}, f"group {group_id!r}", _membership)


def leave(group_id: str, client_id: str) -> ApiRequest[None]:
    fields = {"group_id": group_id, "client_id": client_id}
    return _request(LEAVE, fields, f"leaving group {group_id!r}", lambda answer: None)


def get(
    group_id: str, client_id: str, where: TopicPartition, max_messages: int, in_flight_ms: int, start: int
) -> ApiRequest[GroupIterator]:
    fields = {
        "group_id": group_id,
        "client_id": client_id,
        "topic": where.topic,
        "partition": where.partition,
        "max_messages": max_messages,
        "in_flight_ms": in_flight_ms,
        "start": start,
    }
    return _request(GET, fields, f"the iterator of {where}", lambda answer: _iterator(answer["given"]))


def in_flight(group_id: str, client_id: str | None) -> ApiRequest[list[ListedIterator]]:
    def decode(answer: dict[str, Any]) -> list[ListedIterator]:
        return [
            ListedIterator(
                row["client_id"],
                TopicPartition(row["topic"], row["partition"]),
                row["offset"],
                row["generation"],
                row["left_ms"] / 1000,
                row["handed"],
                None if row["iterator"] is None else _iterator(row),
            )
            for row in answer["given"]
        ]

    return _request(LIST, {"group_id": group_id, "client_id": client_id}, f"group {group_id!r}", decode)


class ClosedBatch(NamedTuple):
    """What an iterator gave, with its messages as they are stored; some of them may lie before or behind it."""

    stored: Buffer
    iterator: GroupIterator
    end_offset: int
    following: GroupIterator | None

    def opened(self, stored: Buffer) -> IteratorBatch:
        """With its messages; CORRUPT_MESSAGE when they are damaged. In any thread."""
        iterator, end = self.iterator, self.end_offset
        messages = decode_messages(stored, iterator.topic, iterator.partition)
        meant = [message for message in messages if iterator.offset <= message.offset < end]
        return IteratorBatch(iterator, meant, end, self.following)


def read(iterator: GroupIterator, max_bytes: int, max_wait_ms: int) -> ApiRequest[ClosedBatch]:
    fields = {"iterator": iterator.token, "max_bytes": max_bytes, "max_wait_ms": max_wait_ms}

    def decode(answer: dict[str, Any]) -> ClosedBatch:
        end = answer["end_offset"]
        return ClosedBatch(
            answer["records"],
            iterator._replace(offset=answer["offset"], token=bytes(answer["iterator"])),
            end,
            None if answer["next"] is None else iterator._replace(offset=end, token=bytes(answer["next"])),
        )

    return _request(READ, fields, f"reading {iterator.topic}-{iterator.partition}", decode)


def commit(group_id: str, client_id: str, iterator: GroupIterator, count: int) -> ApiRequest[IteratorCommit]:
    fields = {"group_id": group_id, "client_id": client_id, "iterator": iterator.token, "count": count}

    def decode(answer: dict[str, Any]) -> IteratorCommit:
        given = answer["given"]
        return IteratorCommit(answer["position"], None if given is None else _iterator(given))

    return _request(COMMIT, fields, f"committing {iterator!r}", decode)


def deliver(group_id: str, client_id: str, iterator: GroupIterator, count: int) -> ApiRequest[float]:
    fields = {"group_id": group_id, "client_id": client_id, "iterator": iterator.token, "count": count}
    return _request(DELIVER, fields, f"handing on {iterator!r}", lambda answer: answer["left_ms"] / 1000)


def _membership(answer: dict[str, Any]) -> IteratorMembership | MillstreamError:
    return IteratorMembership(
        answer["generation"],
        answer["settled"],
        answer["heartbeat_interval_ms"] / 1000,
        answer["session_timeout_ms"] / 1000,
        tuple(TopicPartition(row["topic"], number) for row in answer["assignment"] for number in row["partitions"]),
    )


def _iterator(given: dict[str, Any]) -> GroupIterator:
    return GroupIterator(
        given["topic"],
        given["partition"],
        given["offset"],
        given["max_messages"],
        given["generation"],
        Address(given["host"], given["port"]),
        bytes(given["iterator"]),
    )
