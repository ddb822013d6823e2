"""Tests fetch sessions: requests name only changes, responses contain only news, and the cache is bounded."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from builders.batches import batch
from builders.loops import for_each
from builders.served import ServedBroker, fetch, produce, serve
from millstream.broker.fetch_sessions import UNUSED_S, BrokerFetchSession, FetchSessions
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.seams.entropy import SystemEntropy
from millstream.testing.simulated.clock import ManualClock
from millstream.wire.fetch import FetchedPartition, FetchPartition, FetchRequest
from millstream.wire.fetch_client import FetchResponse
from millstream.wire.topic_ref import TopicRef

VERSIONS = [7, 11, 12, 13, 18]


def want(partition: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(partition, offset, 10_000)


def numbers(answer: FetchResponse) -> list[int]:
    return [fetched.partition for _, partitions in answer.topics for fetched in partitions]


def asking(
    *wants: FetchPartition, session_id: int = 0, epoch: int = 0, topic: TopicRef = "t", forgotten: Sequence[int] = ()
) -> FetchRequest:
    gone: list[tuple[TopicRef, list[int]]] = [(topic, list(forgotten))] if forgotten else []
    return FetchRequest(-1, 0, 1, 1000, 0, session_id, epoch, [(topic, list(wants))], gone, "")


@for_each("version", VERSIONS)
def test_a_session_returns_changes_and_forgets_partitions_on_request(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        made = await broker.topic(partitions=3)
        topic: TopicRef = made.topic_id if version >= 13 else made.name
        peer = await broker.peer()
        everything = [(topic, [want(number) for number in range(3)])]
        first = await fetch(peer, everything, version=version, session_epoch=0)
        session = first.session_id
        assert session != 0
        assert numbers(first) == [0, 1, 2], "the first answer tells of every partition"

        async def go_on(epoch: int, wants: Sequence[FetchPartition] = (), forgotten: Sequence[int] = ()) -> list[int]:
            answer = await fetch(
                peer,
                [(topic, wants)] if wants else [],
                version=version,
                session_id=session,
                session_epoch=epoch,
                forgotten=[(topic, forgotten)] if forgotten else [],
            )
            assert (answer.error, answer.session_id) == (0, session)
            return numbers(answer)

        assert await go_on(1) == []
        await produce(peer, "events", batch(), partition=1)
        assert await go_on(2) == [1]
        assert await go_on(3, wants=[want(1, 1)]) == []
        assert await go_on(4, forgotten=[1]) == []
        await produce(peer, "events", batch(), partition=1)
        await produce(peer, "events", batch(), partition=2)
        assert await go_on(5) == [2]

    serve(tmp_path, story)


@pytest.mark.parametrize(
    ("session_id", "epoch", "code"),
    [(12345, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND), (None, 7, ErrorCode.INVALID_FETCH_SESSION_EPOCH)],
)
def test_a_wrong_session_id_or_epoch_is_refused(
    session_id: int | None, epoch: int, code: ErrorCode, tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        made = (await fetch(peer, [("events", [want(0)])], session_epoch=0)).session_id
        answer = await fetch(peer, [], session_id=session_id or made, session_epoch=epoch)
        assert (answer.error, answer.topics) == (code.number, [])

    serve(tmp_path, story)


def test_a_session_begun_with_topic_names_refuses_requests_with_topic_ids(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        made = (await fetch(peer, [("events", [want(0)])], version=12, session_epoch=0)).session_id
        answer = await fetch(peer, [], version=13, session_id=made, session_epoch=1)
        assert answer.error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR.number

    serve(tmp_path, story)


def test_the_last_request_of_a_session_ends_it(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        made = (await fetch(peer, [("events", [want(0)])], session_epoch=0)).session_id
        last = await fetch(peer, [("events", [want(0)])], session_id=made, session_epoch=-1)
        assert (last.session_id, numbers(last)) == (0, [0])
        answer = await fetch(peer, [], session_id=made, session_epoch=1)
        assert answer.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND.number

    serve(tmp_path, story)


def test_every_partition_gets_its_turn_when_responses_are_full(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=3)
        peer = await broker.peer()
        for partition in range(3):
            for _ in range(3):
                await produce(peer, "events", batch(b"x" * 1000), partition=partition)
        positions = [0, 0, 0]
        wants = [("events", [want(number) for number in range(3)])]
        answer = await fetch(peer, wants, session_epoch=0, max_bytes=1)
        turns = []
        for epoch in range(1, 9):
            ((partition,),) = [[f.partition for f in found if f.records] for _, found in answer.topics if found]
            turns.append(partition)
            positions[partition] += 1
            changed = [("events", [want(partition, positions[partition])])]
            answer = await fetch(peer, changed, session_id=answer.session_id, session_epoch=epoch, max_bytes=1)
        assert sorted(turns[:3]) == sorted(turns[3:6]) == [0, 1, 2]

    serve(tmp_path, story)


class Cache:
    def __init__(self, sessions_max: int = 3, partitions_max: int = 100) -> None:
        self.clock = ManualClock()
        self.sessions = FetchSessions(
            self.clock, SystemEntropy(), sessions_max=sessions_max, partitions_max=partitions_max
        )

    def begin(self, partitions: int = 1) -> BrokerFetchSession | None:
        return self.sessions.begin(asking(*map(want, range(partitions))), uses_ids=False)


def test_a_full_cache_refuses_sessions_until_one_has_been_unused() -> None:
    cache = Cache(sessions_max=3)
    old = [cache.begin() for _ in range(3)]
    assert cache.begin() is None
    cache.clock.advance_ms(int(UNUSED_S * 1000) + 1)
    assert old[0] is not None
    cache.sessions.go_on(asking(session_id=old[0].id, epoch=1), uses_ids=False)
    assert cache.begin() is not None
    assert len(cache.sessions) == 3
    assert old[1] is not None
    with pytest.raises(MillstreamError, match="FETCH_SESSION_ID_NOT_FOUND"):
        cache.sessions.go_on(asking(session_id=old[1].id, epoch=1), uses_ids=False)


def test_the_partitions_of_all_sessions_are_limited() -> None:
    cache = Cache(sessions_max=1000, partitions_max=100)
    assert cache.begin(60) is not None
    assert cache.begin(60) is None
    assert cache.begin(101) is None
    small = cache.begin(10)
    assert small is not None
    # A session that grows beyond the limit of all sessions is served once more and then removed.
    grown = cache.sessions.go_on(asking(*map(want, range(60)), session_id=small.id, epoch=1), uses_ids=False)
    assert grown is small
    assert len(cache.sessions) == 1


def test_a_new_session_of_the_same_reader_replaces_its_old_one() -> None:
    cache = Cache()
    first = cache.begin()
    assert first is not None
    second = cache.sessions.begin(asking(want(0), session_id=first.id), uses_ids=False)
    assert second is not None
    assert len(cache.sessions) == 1


def test_a_session_without_partitions_ends() -> None:
    cache = Cache()
    session = cache.begin()
    assert session is not None
    assert cache.sessions.go_on(asking(session_id=session.id, epoch=1, forgotten=[0]), uses_ids=False) is None
    assert len(cache.sessions) == 0


def test_the_session_epoch_wraps_to_one() -> None:
    cache = Cache()
    session = cache.begin()
    assert session is not None
    session.epoch = 2**31 - 1
    cache.sessions.go_on(asking(session_id=session.id, epoch=2**31 - 1), uses_ids=False)
    assert session.epoch == 1


def test_a_session_repeats_a_partition_error_and_reports_its_recovery_once() -> None:
    cache = Cache()
    session = cache.begin()
    assert session is not None
    bad: list[tuple[TopicRef, FetchedPartition]] = [("t", FetchedPartition(0, error=3))]
    good: list[tuple[TopicRef, FetchedPartition]] = [("t", FetchedPartition(0))]
    assert [len(session.news(each, everything=False)) for each in (good, good, bad, bad, good, good)] == [
        1, 0, 1, 1, 1, 0,
    ]  # fmt: skip
