"""Tests OffsetFetch for groups without committed offsets, in the format of every version."""

from pathlib import Path
from typing import Any
from uuid import UUID

from builders.loops import for_each
from builders.requests import request_frame
from builders.served import ServedBroker, serve
from millstream.model.errors import ErrorCode
from millstream.wire.messages import ELEMENTS_MAX

MANY_FROM, IDS_FROM = 8, 10
TOPIC_ID = UUID(int=7)
NOTHING = {"committed_offset": -1, "metadata": "", "error_code": 0}


def asking(version: int, topics: dict[str, list[int]] | None) -> dict[str, Any]:
    rows = None
    if topics is not None:
        naming = {"topic_id": TOPIC_ID} if version >= MANY_FROM else {}
        rows = [{"name": name, "partition_indexes": each} | naming for name, each in topics.items()]
    if version < MANY_FROM:
        return {"group_id": "group-0", "topics": rows}
    return {"groups": [{"group_id": f"group-{number}", "topics": rows} for number in range(2)]}


def groups_of(version: int, answer: dict[str, Any]) -> list[dict[str, Any]]:
    if version < MANY_FROM:
        return [answer]
    assert [group["group_id"] for group in answer["groups"]] == ["group-0", "group-1"]
    return list(answer["groups"])


@for_each("version", range(1, 11))
def test_no_partition_has_a_committed_offset(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=2)
        answer = await (await broker.peer()).ask("OffsetFetch", version, asking(version, {"events": [0, 1], "no": [5]}))
        for group in groups_of(version, answer):
            assert group["error_code"] == 0
            assert [len(topic["partitions"]) for topic in group["topics"]] == [2, 1]
            if version >= IDS_FROM:
                assert {topic["topic_id"] for topic in group["topics"]} == {TOPIC_ID}
            else:
                assert [topic["name"] for topic in group["topics"]] == ["events", "no"]
            rows = [row for topic in group["topics"] for row in topic["partitions"]]
            assert [row["partition_index"] for row in rows] == [0, 1, 5]
            unknown = {"error_code": ErrorCode.UNKNOWN_TOPIC_ID.number if version >= IDS_FROM else 0}
            assert all(row | NOTHING | unknown == row for row in rows)
            assert {row["committed_leader_epoch"] for row in rows} == {-1}

    serve(tmp_path, story)


@for_each("version", range(2, 11))
def test_a_group_without_commits_has_no_topics(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        answer = await (await broker.peer()).ask("OffsetFetch", version, asking(version, None))
        assert [group["topics"] for group in groups_of(version, answer)] == [[]] * (1 if version < MANY_FROM else 2)

    serve(tmp_path, story)


def test_a_request_with_too_many_partitions_closes_the_connection(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        peer.send(request_frame("OffsetFetch", 7, asking(7, {"events": list(range(ELEMENTS_MAX))})))
        await peer.lost()

    serve(tmp_path, story)
