"""Builds the requests of iterator clients, and decodes their answers."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from millstream.model.broker_endpoint import BrokerEndpoint
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.records.message import Message
from millstream.sdk.connection.address import Address
from millstream.sdk.feed.batch_opening import is_heavy
from millstream.sdk.feed.fetched_chunk import FetchedChunk
from millstream.sdk.feed.partition_feed import PartitionFeed
from millstream.sdk.requests import naming_leader
from millstream.sdk.responses import refusal
from millstream.wire.client_connection import Api, ApiRequest
from millstream.wire.current_leader import CurrentLeader
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
DELIVERED = -1
"""The count of a commit that covers the delivered messages."""


class IteratorMembership(NamedTuple):
    """A client's membership of its group, with the partitions that it owns."""

    generation: int
    is_settled: bool
    """True if the client owns its whole assignment; false while the group rebalances."""
    heartbeat_s: float
    session_s: float
    owned: tuple[TopicPartition, ...]


class GroupIterator(NamedTuple):
    """The right to read some messages of a partition for a group; brokers verify it by its `token`."""

    topic: str
    partition: int
    offset: int
    """The first offset; -2 for the log start, -1 for the log end."""
    max_messages: int
    generation: int
    server: Address
    token: bytes

    def __repr__(self) -> str:
        start = {BEGINNING: "the beginning", END: "the end"}.get(self.offset, self.offset)
        return f"<iterator of {self.topic}-{self.partition} from {start}, generation {self.generation}>"


class IteratorBatch(NamedTuple):
    """The result of reading an iterator: its messages, and the following iterator.

    `following` is None after a rebalance, and if the messages end before those of the iterator. The commit of the batch
    then returns the next iterator, if there is one.
    """

    iterator: GroupIterator
    messages: list[Message]
    end_offset: int
    following: GroupIterator | None

    def first(self, count: int) -> "IteratorBatch":
        """Return the first messages of the batch as a batch."""
        if count == len(self.messages):
            return self
        return IteratorBatch(self.iterator, self.messages[:count], self.messages[count].offset, None)

    def places(self, read: int | None = None) -> int:
        """Return the number of offsets that a commit of the first `read` messages (None: all) covers.

        It counts offsets up to the next message, so it is larger than `read` if compaction removed messages. Raises
        INVALID_REQUEST if the batch has fewer messages.
        """
        if read is not None and read > len(self.messages):
            text = f"cannot commit {read} messages of a batch of {len(self.messages)}"
            raise MillstreamError(ErrorCode.INVALID_REQUEST, text)
        if read is None or read == len(self.messages):
            return self.end_offset - self.iterator.offset
        return (self.messages[read].offset - self.iterator.offset) if read > 0 else 0


class IteratorCommit(NamedTuple):
    position: int
    following: GroupIterator | None


class ListedIterator(NamedTuple):
    """An iterator in flight, as the coordinator lists it.

    Only the owner gets the iterator itself. The owner's list also includes expired iterators (`left_s` is 0) whose
    delivered messages can still be committed.
    """

    client_id: str
    where: TopicPartition
    offset: int
    generation: int
    left_s: float
    delivered: int = 0
    """The number of offsets, from the iterator's first on, that were delivered."""
    iterator: GroupIterator | None = None


def _request(
    api: Api, fields: dict[str, Any], what: str, decode: Callable[[dict[str, Any]], Any], *, wait_s: float = 0.0
) -> ApiRequest[Any]:
    def read(version: int, frame: memoryview, start: int) -> Any:
        answer = read_response(api.name, version, frame, start)
        if answer["error_code"]:
            return naming_leader(refusal(answer["error_code"], what, answer["error_message"]), _leader_in(answer))
        return decode(answer)

    return ApiRequest(api, lambda version: [write_request(api.name, version, fields)], read, wait_s=wait_s)


def _leader_in(answer: Mapping[str, Any]) -> CurrentLeader | None:
    """Return the leader that a refused read names."""
    leader = answer.get("current_leader")
    if not leader:
        return None
    endpoint = next((BrokerEndpoint(**each) for each in answer["node_endpoints"]), None)
    return CurrentLeader(leader["leader_id"], leader["leader_epoch"], endpoint)


def join(group_id: str, client_id: str) -> ApiRequest[IteratorMembership]:
    return _request(JOIN, {"group_id": group_id, "client_id": client_id}, f"joining group {group_id!r}", _membership)


def heartbeat(group_id: str, client_id: str) -> ApiRequest[IteratorMembership]:
    return _request(HEARTBEAT, {"group_id": group_id, "client_id": client_id}, f"group {group_id!r}", _membership)


def leave(group_id: str, client_id: str) -> ApiRequest[None]:
    fields = {"group_id": group_id, "client_id": client_id}
    return _request(LEAVE, fields, f"leaving group {group_id!r}", lambda answer: None)


def get(
    group_id: str, client_id: str, where: TopicPartition, *, max_messages: int, in_flight_ms: int, start: int
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
                row["delivered"],
                None if row["iterator"] is None else _iterator(row),
            )
            for row in answer["given"]
        ]

    return _request(LIST, {"group_id": group_id, "client_id": client_id}, f"group {group_id!r}", decode)


class ClosedBatch(NamedTuple):
    """The result of reading an iterator, as stored batches; these may hold messages outside of the iterator's range."""

    stored: Buffer
    iterator: GroupIterator
    end_offset: int
    following: GroupIterator | None

    def chunk(self, feed: PartitionFeed) -> FetchedChunk:
        """Make the chunk of the records in the iterator's range."""
        stored = memoryview(self.stored)
        offset, is_packed = self.iterator.offset, is_heavy(stored)
        return FetchedChunk(feed, offset, next_offset=self.end_offset, stored=stored, is_packed=is_packed)


def read(iterator: GroupIterator, *, max_bytes: int, max_wait_ms: int) -> ApiRequest[ClosedBatch]:
    fields = {"iterator": iterator.token, "max_bytes": max_bytes, "max_wait_ms": max_wait_ms}

    def decode(answer: dict[str, Any]) -> ClosedBatch:
        end = answer["end_offset"]
        return ClosedBatch(
            answer["records"],
            iterator._replace(offset=answer["offset"], token=bytes(answer["iterator"])),
            end,
            None if answer["next"] is None else iterator._replace(offset=end, token=bytes(answer["next"])),
        )

    return _request(READ, fields, f"reading {iterator.topic}-{iterator.partition}", decode, wait_s=max_wait_ms / 1000)


def commit(group_id: str, client_id: str, iterator: GroupIterator, count: int) -> ApiRequest[IteratorCommit]:
    fields = {"group_id": group_id, "client_id": client_id, "iterator": iterator.token, "count": count}

    def decode(answer: dict[str, Any]) -> IteratorCommit:
        given = answer["given"]
        return IteratorCommit(answer["position"], None if given is None else _iterator(given))

    return _request(COMMIT, fields, f"committing {iterator!r}", decode)


def deliver(group_id: str, client_id: str, iterator: GroupIterator, count: int) -> ApiRequest[float]:
    fields = {"group_id": group_id, "client_id": client_id, "iterator": iterator.token, "count": count}
    return _request(DELIVER, fields, f"delivering {iterator!r}", lambda answer: answer["left_ms"] / 1000)


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
