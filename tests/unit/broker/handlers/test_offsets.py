"""Tests ListOffsets and OffsetForLeaderEpoch."""

import asyncio
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from builders.batches import SOME_TIME_MS, batch
from builders.loops import for_each
from builders.requests import request_frame
from builders.served import ServedBroker, produce, serve
from millstream.broker.dispatch.request import BrokerRequest, Work
from millstream.broker.handlers.list_offsets import TIMES_AT_ONCE_MAX, ListOffsetsHandler
from millstream.catalog.cluster_image import ClusterImage
from millstream.model.errors import ErrorCode
from millstream.model.ids import LeaderEpoch, Offset
from millstream.model.limits import PARTITIONS_PER_TOPIC_MAX
from millstream.partition.leadership import Leadership
from millstream.partition.offset_lookup import FoundOffset
from millstream.wire.fetch import FetchPartition
from millstream.wire.fetch_client import write_fetch_request
from millstream.wire.messages import read_response, write_request

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


def asking(*partitions: dict[str, Any], topic: str = "events") -> dict[str, Any]:
    return {"replica_id": -1, "topics": [{"name": topic, "partitions": list(partitions)}]}


async def three_messages(broker: ServedBroker) -> None:
    await broker.topic(partitions=2)
    peer = await broker.peer()
    for delay_ms in (0, 2000, 1000):
        await produce(peer, "events", batch(timestamp=SOME_TIME_MS + delay_ms))


FOUND = {
    LATEST: (3, -1),
    EARLIEST: (0, -1),
    MAX_TIMESTAMP: (1, SOME_TIME_MS + 2000),
    EARLIEST_LOCAL: (0, -1),
    LATEST_TIERED: (-1, -1),
    SOME_TIME_MS: (0, SOME_TIME_MS),
    SOME_TIME_MS + 1: (1, SOME_TIME_MS + 2000),
    SOME_TIME_MS + 3000: (-1, -1),
}
SINCE_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}


@for_each("version", range(1, 12))
def test_offsets_are_found_by_timestamp_and_special_timestamp(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await three_messages(broker)
        known = {time: place for time, place in FOUND.items() if version >= SINCE_VERSION.get(time, 0)}
        wanted = [{"partition_index": 0, "timestamp": timestamp} for timestamp in known]
        answer = await (await broker.peer()).ask("ListOffsets", version, asking(*wanted))
        rows = answer["topics"][0]["partitions"]
        assert [row["error_code"] for row in rows] == [0] * len(known)
        found = [(row["offset"], row["timestamp"]) for row in rows]
        assert dict(zip(known, found, strict=True)) == known

    serve(tmp_path, story)


@pytest.mark.parametrize(
    ("time", "version"), [(-77, 11), *((time, since - 1) for time, since in SINCE_VERSION.items())]
)
def test_a_special_timestamp_unknown_in_a_version_is_refused(time: int, version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await three_messages(broker)
        peer = await broker.peer()
        answer = await peer.ask("ListOffsets", version, asking({"partition_index": 0, "timestamp": time}))
        (row,) = answer["topics"][0]["partitions"]
        assert row["error_code"] == ErrorCode.UNSUPPORTED_VERSION.number

    serve(tmp_path, story)


@pytest.mark.parametrize("api", ["ListOffsets", "OffsetForLeaderEpoch"])
@pytest.mark.parametrize(
    ("topic", "partition", "epoch", "code"),
    [
        ("unknown", 0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("events", 9, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("events", 0, 7, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_missing_partitions_and_future_epochs_are_refused(
    api: str, topic: str, partition: int, epoch: int, code: ErrorCode, tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        await three_messages(broker)
        if api == "ListOffsets":
            fields = asking(
                {"partition_index": partition, "timestamp": LATEST, "current_leader_epoch": epoch}, topic=topic
            )
        else:
            row = {"partition": partition, "current_leader_epoch": epoch, "leader_epoch": 0}
            fields = {"topics": [{"topic": topic, "partitions": [row]}]}
        answer = await (await broker.peer()).ask(api, 4, fields)
        assert answer["topics"][0]["partitions"][0]["error_code"] == code.number

    serve(tmp_path, story)


@for_each("version", range(2, 5))
def test_the_end_offset_of_an_epoch_is_returned(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await three_messages(broker)
        rows = [{"partition": 0, "leader_epoch": epoch} for epoch in (0, 5)]
        fields = {"topics": [{"topic": "events", "partitions": rows}]}
        answer = await (await broker.peer()).ask("OffsetForLeaderEpoch", version, fields)
        known, unknown = answer["topics"][0]["partitions"]
        assert (known["error_code"], known["leader_epoch"], known["end_offset"]) == (0, 0, 3)
        assert (unknown["error_code"], unknown["leader_epoch"], unknown["end_offset"]) == (0, -1, -1)

    serve(tmp_path, story)


def test_more_partitions_than_one_slice_are_answered_in_order(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await three_messages(broker)
        rows = [{"partition_index": number % 2, "timestamp": LATEST} for number in range(3000)]
        answer = await (await broker.peer()).ask("ListOffsets", 6, asking(*rows))
        found = [row["offset"] for row in answer["topics"][0]["partitions"]]
        assert found == [3, 0] * 1500

    serve(tmp_path, story)


class SlowTimes:
    """Partitions whose timestamp lookups finish when the test allows it. Counts the running lookups."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.asked: list[int] = []
        self.under_way = 0
        self.most = 0

    @property
    def image(self) -> ClusterImage:
        raise AssertionError("every partition is found here")

    def get(self, topic: str, number: int) -> Leadership:
        return cast(Leadership, self)

    def get_by_id(self, topic_id: UUID, number: int) -> Leadership:
        return cast(Leadership, self)

    def check_leader_epoch(self, epoch: int) -> None:
        """Accept every epoch."""

    async def offset_for_time(self, timestamp_ms: int) -> FoundOffset:
        if timestamp_ms == LATEST:
            return FoundOffset(Offset(3), -1, LeaderEpoch(0))
        self.asked.append(timestamp_ms)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await self.go_on.wait()
        self.under_way -= 1
        return FoundOffset(Offset(1), timestamp_ms, LeaderEpoch(0))


def start(handler: ListOffsetsHandler, *times: int) -> tuple[asyncio.Task[Any], Work]:
    body = write_request("ListOffsets", 6, asking(*({"partition_index": 0, "timestamp": each} for each in times)))
    work = handler(BrokerRequest(6, correlation_id=1, frame=memoryview(body), body=0))
    assert isinstance(work, Work)
    return asyncio.ensure_future(work.run), work


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_few_timestamp_lookups_run_at_once_and_do_not_delay_log_ends() -> None:
    async def test() -> None:
        partitions = SlowTimes()
        handler = ListOffsetsHandler(partitions)
        slow = [start(handler, number)[0] for number in range(40)]
        await turns()
        assert partitions.under_way == TIMES_AT_ONCE_MAX
        quick, _ = start(handler, LATEST)
        answer = read_response("ListOffsets", 6, memoryview(await quick), 0)
        assert answer["topics"][0]["partitions"][0]["offset"] == 3
        assert not any(task.done() for task in slow)
        partitions.go_on.set()
        await asyncio.gather(*slow)
        assert partitions.asked == list(range(40))
        assert partitions.most == TIMES_AT_ONCE_MAX

    asyncio.run(test())


def test_a_repeated_timestamp_is_looked_up_once() -> None:
    async def test() -> None:
        partitions = SlowTimes()
        partitions.go_on.set()
        task, _ = start(ListOffsetsHandler(partitions), *[7, 8] * 100)
        answer = read_response("ListOffsets", 6, memoryview(await task), 0)
        assert [row["timestamp"] for row in answer["topics"][0]["partitions"]] == [7, 8] * 100
        assert partitions.asked == [7, 8]

    asyncio.run(test())


def test_lookups_end_when_the_peer_disconnects() -> None:
    async def test() -> None:
        partitions = SlowTimes()
        task, work = start(ListOffsetsHandler(partitions), *range(100))
        await turns()
        assert work.hurry is not None
        work.hurry()
        partitions.go_on.set()
        await task
        assert partitions.asked == [0]

    asyncio.run(test())


def many_partitions(api: str, count: int) -> bytes:
    """Build a request that names this many partitions of one topic."""
    if api == "Fetch":
        wants = [("events", [FetchPartition(number, 0, 1) for number in range(count)])]
        return request_frame(api, 12, body=[write_fetch_request(12, wants, max_wait_ms=0)])
    if api == "ListOffsets":
        rows = [{"partition_index": number, "timestamp": LATEST} for number in range(count)]
        return request_frame(api, 4, asking(*rows))
    rows = [{"partition": number, "leader_epoch": 0} for number in range(count)]
    return request_frame(api, 4, {"topics": [{"topic": "events", "partitions": rows}]})


@pytest.mark.parametrize("api", ["Fetch", "ListOffsets", "OffsetForLeaderEpoch"])
def test_a_request_may_name_all_partitions_of_the_largest_topic(
    api: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        peer.send(many_partitions(api, PARTITIONS_PER_TOPIC_MAX))
        assert len(await peer.frame()) > PARTITIONS_PER_TOPIC_MAX
        peer.send(many_partitions(api, 2 * PARTITIONS_PER_TOPIC_MAX))
        await peer.lost()

    serve(tmp_path, story)
    assert "the message has more than" in str([vars(record) for record in caplog.records])
