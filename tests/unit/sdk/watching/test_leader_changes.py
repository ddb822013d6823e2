"""Reads of the backlog follow their partitions from leader to leader, each partition by itself."""

from uuid import UUID

import pytest

from builders.sdk.engines import Put
from builders.sdk.feeds import caller, lookups
from builders.sdk.scripted_broker import PartitionLog, Refuse, Scene, play
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.watching.backlog_fetch import BacklogFetch
from millstream.sdk.watching.read_result import WatchLimits

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
LIMITS = WatchLimits(100, 2**20)


async def written(scene: Scene, partitions: int = 1) -> list[PartitionLog]:
    """Make a topic with an id and leader epochs, whose partitions have a message each."""
    logs = scene.cluster.topic("t", partitions)
    scene.cluster.topic_ids["t"] = UUID(int=1)
    put = Put(scene)
    for number, log in enumerate(logs):
        log.epoch = 0
        await put("t", b"%d" % number, partition=number)
    return logs


async def read(backlog: BacklogFetch, *places: TopicPartition, timeout_s: float = 5.0) -> list[bytes | None]:
    found = await backlog.fetch(dict.fromkeys(places, 0), LIMITS, Deadline(timeout_s))
    assert list(found) == list(places)
    return [message.value for where in places for message in found[where].messages]


def test_a_read_follows_a_named_leader_without_a_metadata_request() -> None:
    async def body(scene: Scene) -> None:
        (log,) = await written(scene)
        backlog = BacklogFetch(caller(scene))
        assert await read(backlog, FIRST) == [b"0"]
        before = lookups(scene)
        scene.cluster.names_leaders = True
        scene.cluster.move(log, 2)
        for _ in range(2):
            assert await read(backlog, FIRST) == [b"0"]
        assert scene.cluster.requests("Fetch") == [1, 1, 2, 2]
        assert lookups(scene) == before

    play(body, nodes=2)


def test_a_read_looks_up_the_leader_when_the_refusal_names_none() -> None:
    async def body(scene: Scene) -> None:
        (log,) = await written(scene)
        backlog = BacklogFetch(caller(scene))
        assert await read(backlog, FIRST) == [b"0"]
        before = lookups(scene)
        scene.cluster.move(log, 2)
        assert await read(backlog, FIRST) == [b"0"]
        assert scene.cluster.requests("Fetch") == [1, 1, 2]
        assert lookups(scene) == before + 1

    play(body, nodes=2)


def test_a_read_sends_the_leader_epoch() -> None:
    async def body(scene: Scene) -> None:
        (log,) = await written(scene)
        backlog = BacklogFetch(caller(scene))
        assert await read(backlog, FIRST) == [b"0"]
        scene.cluster.names_leaders = True
        scene.cluster.move(log, 1)
        assert await read(backlog, FIRST) == [b"0"]
        assert scene.cluster.requests("Fetch") == [1, 1, 1], "the old epoch was refused once"
        assert await read(backlog, FIRST) == [b"0"]
        assert len(scene.cluster.requests("Fetch")) == 4, "the new epoch is known"

    play(body)


@pytest.mark.parametrize("names_leaders", [True, False])
def test_only_the_refused_partition_is_requested_again(names_leaders: bool) -> None:
    async def body(scene: Scene) -> None:
        logs = await written(scene, partitions=2)
        backlog = BacklogFetch(caller(scene))
        assert await read(backlog, FIRST, SECOND) == [b"0", b"1"]
        scene.cluster.names_leaders = names_leaders
        scene.cluster.move(logs[1], 2)
        assert await read(backlog, FIRST, SECOND) == [b"0", b"1"]
        assert scene.cluster.requests("Fetch") == [1, 1, 2]

    play(body, nodes=2)


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH]
)
def test_a_read_ends_with_the_refusal_at_its_deadline(code: ErrorCode) -> None:
    async def body(scene: Scene) -> None:
        await written(scene)
        backlog = BacklogFetch(caller(scene))
        scene.cluster.then("Fetch", *[Refuse(code)] * 1_000)
        with pytest.raises(MillstreamError, match="reading t-0 at offset 0") as caught:
            await read(backlog, FIRST, timeout_s=10.0)
        assert caught.value.code is code
        assert 8 <= len(scene.cluster.requests("Fetch")) <= 25, "the backoff grows"

    play(body)


def test_an_offset_before_the_log_start_is_raised_at_once() -> None:
    async def body(scene: Scene) -> None:
        logs = await written(scene, partitions=2)
        logs[0].start = 5
        with pytest.raises(MillstreamError, match="offset 0") as caught:
            await read(BacklogFetch(caller(scene)), FIRST, SECOND)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert scene.cluster.requests("Fetch") == [1]

    play(body)
