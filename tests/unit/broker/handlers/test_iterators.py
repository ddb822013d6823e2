"""Tests iterators over plain sockets, with a client that uses only the wire protocol."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from builders.batches import batch
from builders.partitions import HOST
from builders.requests import RawPeer
from builders.served import ServedBroker, produce, serve, until
from millstream.broker.handlers import iterator_membership
from millstream.broker.long_poll import WAIT_MS_MAX
from millstream.broker.net.memory_limits import OUTGOING_BYTES_MAX
from millstream.broker.signed_iterators import TOKEN_BYTES_MAX, IteratorSigner
from millstream.groups.settings import GroupSettings
from millstream.model.errors import ErrorCode
from millstream.records.batch import decode_batches

IN_FLIGHT_MS = 30_000
BIG = b"x" * 100_000
NOW: dict[str, Any] = {"max_wait_ms": 0}


class Client:
    """A minimal client of iterators: requests by their schema, over a socket."""

    def __init__(self, peer: RawPeer, name: str = "a", group: str = "g") -> None:
        self.peer = peer
        self.names = {"group_id": group, "client_id": name}

    async def join(self) -> Any:
        return await self.peer.ask("IteratorJoin", 0, self.names)

    async def heartbeat(self) -> Any:
        return await self.peer.ask("IteratorHeartbeat", 0, self.names)

    async def get(self, partition: int = 0, **other: Any) -> Any:
        fields = {**self.names, "topic": "events", "partition": partition, **other}
        return await self.peer.ask("GetIterator", 0, fields)

    async def iterator(self, partition: int = 0, **other: Any) -> bytes:
        answer = await self.get(partition, **other)
        assert answer["error_code"] == 0, answer
        return bytes(answer["given"]["iterator"])

    async def read(self, iterator: bytes, **other: Any) -> Any:
        return await self.peer.ask("ReadIterator", 0, {"iterator": iterator, **NOW, **other})

    async def commit(self, iterator: bytes, count: int, **other: Any) -> Any:
        return await self.peer.ask("CommitIterator", 0, {**self.names, "iterator": iterator, "count": count, **other})


def told(story: Callable[[ServedBroker, Client], Awaitable[None]], directory: Path, **settings: Any) -> None:
    """Run a story with a client that has joined, and a topic."""

    async def whole(broker: ServedBroker) -> None:
        await broker.topic(partitions=2)
        client = Client(await broker.peer())
        assert (await client.join())["error_code"] == 0
        await story(broker, client)

    serve(directory, whole, groups=GroupSettings(consumer_assignment_interval_ms=0, **settings))


def values(answer: Any) -> list[bytes | None]:
    """Return the values of the messages within the iterator's range."""
    assert answer["error_code"] == 0, answer
    records = decode_batches(bytes(answer["records"]))
    return [each.value for each in records if answer["offset"] <= each.offset < answer["end_offset"]]


async def put(broker: ServedBroker, *messages: bytes, partition: int = 0) -> None:
    """Write all values in one batch."""
    result = await produce(await broker.peer(), "events", batch(*messages), partition=partition)
    assert result.error == 0


def error_of(answer: Any) -> ErrorCode:
    return ErrorCode.of(answer["error_code"])


def test_a_group_reads_a_partition_to_its_end_with_iterators(tmp_path: Path) -> None:
    async def story(broker: ServedBroker, a: Client) -> None:
        await put(broker, b"0", b"1", b"2")
        await put(broker, b"3", b"4")
        given = (await a.get(0, max_messages=2))["given"]
        assert (given["host"], given["port"]) == (HOST, broker.port)
        assert (given["topic"], given["partition"], given["offset"], given["max_messages"]) == ("events", 0, -2, 2)
        iterator = bytes(given["iterator"])
        seen: list[bytes | None] = []
        for _ in range(3):
            answer = await a.read(iterator)
            seen += values(answer)
            count = answer["end_offset"] - answer["offset"]
            committed = await a.commit(bytes(answer["iterator"]), count)
            assert committed["position"] == answer["end_offset"]
            iterator = bytes(committed["given"]["iterator"])
        assert seen == [b"0", b"1", b"2", b"3", b"4"]
        assert values(await a.read(iterator)) == []

    told(story, tmp_path)


def test_the_server_signs_the_next_iterator_without_the_coordinator(tmp_path: Path) -> None:
    async def story(broker: ServedBroker, a: Client) -> None:
        await put(broker, *[b"%d" % number for number in range(10)])
        iterator = await a.iterator(0, max_messages=4)
        await broker.groups.stop()
        seen: list[bytes | None] = []
        for _ in range(3):
            answer = await a.read(iterator)
            seen += values(answer)
            iterator = bytes(answer["next"])
        assert seen == [b"%d" % number for number in range(10)]

    told(story, tmp_path)


def test_uncommitted_messages_are_read_again_and_committed_ones_are_not(tmp_path: Path) -> None:
    async def story(broker: ServedBroker, a: Client) -> None:
        await put(broker, b"0", b"1", b"2", b"3")
        answer = await a.read(await a.iterator(0))
        assert len(values(answer)) == 4
        await a.commit(bytes(answer["iterator"]), 3)
        broker.clock.turn(IN_FLIGHT_MS)
        assert values(await a.read(await a.iterator(0))) == [b"3"]

    told(story, tmp_path)


def test_batches_are_returned_as_they_are_stored(tmp_path: Path) -> None:
    async def story(broker: ServedBroker, a: Client) -> None:
        await put(broker, BIG, BIG + b"1")
        await put(broker, b"2")
        answer = await a.read(await a.iterator(0, max_messages=1))
        assert values(answer) == [BIG]
        assert len(decode_batches(bytes(answer["records"]))) == 2, "the batch is not opened to be cut"
        answer = await a.read(bytes(answer["next"]))
        assert values(answer) == [BIG + b"1"]

    told(story, tmp_path)


def test_a_response_has_at_most_max_bytes_but_at_least_one_batch(tmp_path: Path) -> None:
    async def story(broker: ServedBroker, a: Client) -> None:
        for number in range(5):
            await put(broker, BIG + b"%d" % number)
        iterator = await a.iterator(0)
        assert len(values(await a.read(iterator, max_bytes=1))) == 1
        answer = await a.read(iterator, max_bytes=250_000)
        assert len(values(answer)) == answer["end_offset"] == 2
        assert len(values(await a.read(iterator))) == 5

    told(story, tmp_path)


def test_a_waiting_iterator_read_returns_the_first_message_at_once(tmp_path: Path) -> None:
    async def story(broker: ServedBroker, a: Client) -> None:
        iterator = await a.iterator(0, start=-1)
        waiting = asyncio.create_task(a.read(iterator, max_wait_ms=WAIT_MS_MAX))
        await until(lambda: broker.partitions.of("events")[0].waiting == 1)
        await put(broker, b"news")
        answer = await waiting
        assert values(answer) == [b"news"]
        answer = await a.read(bytes(answer["next"]), max_wait_ms=1)
        assert values(answer) == []
        assert bytes(answer["next"]) == bytes(answer["iterator"])

    told(story, tmp_path)


def test_messages_without_memory_are_returned_once_memory_is_free(tmp_path: Path) -> None:
    async def story(broker: ServedBroker, a: Client) -> None:
        await put(broker, b"0")
        iterator = await a.iterator(0)
        broker.memory.outgoing_bytes += OUTGOING_BYTES_MAX
        assert values(await a.read(iterator)) == []
        waiting = asyncio.create_task(a.read(iterator, max_wait_ms=WAIT_MS_MAX))
        await until(lambda: broker.partitions.of("events")[0].waiting == 1)
        broker.memory.outgoing_bytes -= OUTGOING_BYTES_MAX
        assert values(await waiting) == [b"0"]

    told(story, tmp_path)


def test_a_wait_ends_when_the_partition_is_deleted(tmp_path: Path) -> None:
    async def story(broker: ServedBroker, a: Client) -> None:
        iterator = await a.iterator(0)
        waiting = asyncio.create_task(a.read(iterator, max_wait_ms=WAIT_MS_MAX))
        await until(lambda: broker.partitions.of("events")[0].waiting == 1)
        await broker.partitions.delete("events")
        assert error_of(await waiting) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert error_of(await a.read(iterator)) is ErrorCode.UNKNOWN_TOPIC_ID

    told(story, tmp_path)


def test_a_wait_for_memory_ends_when_the_partition_is_deleted(tmp_path: Path) -> None:
    async def story(broker: ServedBroker, a: Client) -> None:
        await put(broker, b"0")
        iterator = await a.iterator(0)
        broker.memory.outgoing_bytes += OUTGOING_BYTES_MAX
        waiting = asyncio.create_task(a.read(iterator, max_wait_ms=WAIT_MS_MAX))
        await until(lambda: broker.partitions.of("events")[0].waiting == 1)
        await broker.partitions.delete("events")
        assert error_of(await waiting) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    told(story, tmp_path)


def test_a_group_behind_the_log_start_continues_at_the_log_start(tmp_path: Path) -> None:
    async def story(broker: ServedBroker, a: Client) -> None:
        await put(broker, *[b"%d" % number for number in range(6)])
        answer = await a.read(await a.iterator(0))
        iterator = bytes((await a.commit(bytes(answer["iterator"]), 1))["given"]["iterator"])
        await broker.partitions.of("events")[0].delete_records(4)
        answer = await a.read(iterator)
        assert (answer["offset"], answer["log_start_offset"], values(answer)) == (4, 4, [b"4", b"5"])
        assert (await a.commit(bytes(answer["iterator"]), 2))["position"] == 6

    told(story, tmp_path)


def test_an_offset_after_the_log_end_waits_and_is_then_out_of_range(tmp_path: Path) -> None:
    async def story(broker: ServedBroker, a: Client) -> None:
        seal = broker.iterators.signer
        far = seal.sign(replace(seal.open(await a.iterator(0)), offset=7))
        assert error_of(await a.read(far)) is ErrorCode.OFFSET_OUT_OF_RANGE
        waiting = asyncio.create_task(a.read(far, max_wait_ms=WAIT_MS_MAX))
        await until(lambda: broker.partitions.of("events")[0].waiting == 1)
        await put(broker, *[b"%d" % number for number in range(8)])
        assert values(await waiting) == [b"7"]

    told(story, tmp_path)


def test_after_a_rebalance_an_old_iterator_returns_its_messages_but_no_next_one(tmp_path: Path) -> None:
    async def story(broker: ServedBroker, a: Client) -> None:
        await put(broker, b"0", b"1", b"2")
        iterator = await a.iterator(0, max_messages=2)
        b = Client(await broker.peer(), "b")
        await b.join()
        assert error_of(await b.get(1)) is ErrorCode.NONE or error_of(await b.get(0)) is ErrorCode.NOT_OWNER
        answer = await a.read(iterator)
        assert values(answer) == [b"0", b"1"]
        assert answer["next"] is None
        assert (await a.commit(bytes(answer["iterator"]), 2))["position"] == 2
        await a.heartbeat()
        owners = [client for client in (a, b) if error_of(await client.get(0)) is ErrorCode.NONE]
        assert len(owners) == 1
        assert values(await owners[0].read(await owners[0].iterator(0))) == [b"2"]
        if owners[0] is b:
            assert error_of(await a.read(iterator)) is ErrorCode.FENCED_ITERATOR

    told(story, tmp_path)


def test_a_client_that_does_not_own_the_partition_gets_not_owner(tmp_path: Path) -> None:
    async def story(broker: ServedBroker, a: Client) -> None:
        await a.iterator(0)
        await a.iterator(1)
        b = Client(await broker.peer(), "b")
        await b.join()
        answer = await b.get(0)
        assert error_of(answer) is ErrorCode.NOT_OWNER
        assert "events-0" in answer["error_message"]

    told(story, tmp_path)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda token: b"",
        lambda token: token[:31],
        lambda token: token[:-1],
        lambda token: token + b"\0",
        lambda token: bytes([token[0] ^ 1]) + token[1:],
        lambda token: token[:20] + bytes([token[20] ^ 1]) + token[21:],
        lambda token: token[:-1] + bytes([token[-1] ^ 1]),
        lambda token: token[:-32] + bytes(32),
        lambda token: token * 20,
        lambda token: IteratorSigner(b"another key").sign(IteratorSigner(b"only tests know this").open(token)),
    ],
)
def test_an_unsigned_iterator_is_refused(spoil: Callable[[bytes], bytes], tmp_path: Path) -> None:
    async def story(broker: ServedBroker, a: Client) -> None:
        await put(broker, b"0")
        forged = spoil(await a.iterator(0))
        for answer in (await a.read(forged), await a.commit(forged, 0)):
            assert error_of(answer) is ErrorCode.INVALID_ITERATOR
            assert answer["error_message"]
        assert error_of(await a.heartbeat()) is ErrorCode.NONE

    told(story, tmp_path)


def test_the_longest_names_fit_into_an_iterator(tmp_path: Path) -> None:
    async def story(broker: ServedBroker, a: Client) -> None:
        await broker.topic("t" * 249)
        a = Client(await broker.peer(), "c" * 255, "g" * 255)
        await a.join()
        token = await a.iterator(0, topic="t" * 249)
        assert len(token) < TOKEN_BYTES_MAX // 2
        assert values(await a.read(token)) == []

    told(story, tmp_path)


def test_an_iterator_of_another_client_or_group_commits_nothing(tmp_path: Path) -> None:
    async def story(broker: ServedBroker, a: Client) -> None:
        token = await a.iterator(0)
        for other in ({"client_id": "b"}, {"group_id": "h"}):
            assert error_of(await a.commit(token, 0, **other)) is ErrorCode.FOREIGN_ITERATOR

    told(story, tmp_path)


def test_an_expired_iterator_is_refused_and_issued_again(tmp_path: Path) -> None:
    async def story(broker: ServedBroker, a: Client) -> None:
        token = await a.iterator(0)
        broker.clock.turn(IN_FLIGHT_MS)
        assert error_of(await a.read(token)) is ErrorCode.ITERATOR_EXPIRED
        again = await a.iterator(0)
        assert again != token
        assert error_of(await a.read(again)) is ErrorCode.NONE
        assert error_of(await a.commit(token, 0)) is ErrorCode.ITERATOR_SETTLED

    told(story, tmp_path)


def test_list_iterators_returns_signed_iterators_only_to_their_client(tmp_path: Path) -> None:
    async def story(broker: ServedBroker, a: Client) -> None:
        token = await a.iterator(1)
        own = await a.peer.ask("ListIterators", 0, {"group_id": "g", "client_id": "a"})
        assert [(each["partition"], bytes(each["iterator"])) for each in own["given"]] == [(1, token)]
        every = await a.peer.ask("ListIterators", 0, {"group_id": "g", "client_id": None})
        assert [(each["client_id"], each["iterator"]) for each in every["given"]] == [("a", None)]
        unknown = await a.peer.ask("ListIterators", 0, {"group_id": "nobody's", "client_id": None})
        assert error_of(unknown) is ErrorCode.GROUP_ID_NOT_FOUND

    told(story, tmp_path)


def test_a_client_that_left_must_join_again(tmp_path: Path) -> None:
    async def story(broker: ServedBroker, a: Client) -> None:
        assert error_of(await a.peer.ask("IteratorLeave", 0, a.names)) is ErrorCode.NONE
        for answer in (await a.heartbeat(), await a.get(0), await a.peer.ask("IteratorLeave", 0, a.names)):
            assert error_of(answer) is ErrorCode.UNKNOWN_MEMBER_ID
        await a.join()
        assert error_of(await a.get(0)) is ErrorCode.NONE

    told(story, tmp_path)


def test_offset_fetch_returns_the_commits_of_iterators(tmp_path: Path) -> None:
    async def story(broker: ServedBroker, a: Client) -> None:
        await put(broker, b"0", b"1")
        answer = await a.read(await a.iterator(0))
        await a.commit(bytes(answer["iterator"]), 2)
        told = await a.peer.ask("OffsetFetch", 8, {"groups": [{"group_id": "g", "topics": None}]})
        ((topic,),) = [group["topics"] for group in told["groups"]]
        assert [(each["partition_index"], each["committed_offset"]) for each in topic["partitions"]] == [(0, 2)]

    told(story, tmp_path)


def test_a_response_that_cannot_be_encoded_closes_the_connection_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> bytes:
        raise RuntimeError("a bug")

    async def story(broker: ServedBroker) -> None:
        monkeypatch.setattr(iterator_membership, "_encode", broken)
        with pytest.raises((EOFError, ConnectionError)):
            await Client(await broker.peer()).join()

    serve(tmp_path, story)
    assert "request failed unexpectedly, connection closed" in caplog.messages
