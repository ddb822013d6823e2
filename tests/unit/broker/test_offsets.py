"""ListOffsets and OffsetForLeaderEpoch: where things are."""

from pathlib import Path
from typing import Any

import pytest

from builders.batches import SOME_TIME_MS, batch
from builders.served import ServedBroker, produce, serve
from penstock.model.errors import ErrorCode

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


@pytest.mark.parametrize("version", range(1, 12))
def test_offsets_are_found_by_time_and_by_the_times_that_are_none(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await three_messages(broker)
        wanted = [{"partition_index": 0, "timestamp": timestamp} for timestamp in FOUND]
        answer = await (await broker.peer()).ask("ListOffsets", version, asking(*wanted))
        rows = answer["topics"][0]["partitions"]
        assert [row["error_code"] for row in rows] == [0] * len(FOUND)
        found = [(row["offset"], row["timestamp"]) for row in rows]
        assert dict(zip(FOUND, found, strict=True)) == FOUND

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
def test_what_is_not_there_and_epochs_from_the_future_are_told(
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


@pytest.mark.parametrize("version", range(2, 5))
def test_the_end_of_an_epoch_is_told(version: int, tmp_path: Path) -> None:
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
