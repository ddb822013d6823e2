"""Tests stateless iterator calls, from one process or several."""

from typing import Any

import pytest

from builders.sdk.simulated_consumers import GROUP, TOPIC, Ground, play
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.aio.iterator_calls import AsyncIteratorCalls
from millstream.sdk.connection.address import Address
from millstream.sdk.iterating import requests
from millstream.sdk.iterating.requests import GroupIterator, ListedIterator
from millstream.sdk.responses import Broker, NotLeaderError
from millstream.wire.messages import write_response

NAMES = (GROUP, "a")


async def owned_iterator(calls: AsyncIteratorCalls, **wanted: Any) -> GroupIterator:
    """Return the iterator of the only partition after the rebalance."""
    await calls.join(*NAMES)
    return await calls.get(*NAMES, TOPIC, 0, **wanted)


def code_of(caught: "pytest.ExceptionInfo[MillstreamError]") -> ErrorCode:
    return caught.value.code


def test_one_process_can_commit_what_another_process_delivered() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)
        elsewhere = await ground.machine.connect("elsewhere")
        here, there = ground.client.iterator_calls(), elsewhere.iterator_calls()
        iterator = await owned_iterator(here)
        with pytest.raises(MillstreamError) as nothing:
            await here.commit(*NAMES, iterator)
        assert code_of(nothing) is ErrorCode.NOTHING_HANDED
        batch = await here.read(iterator)
        assert await here.deliver(*NAMES, batch, 4) == 30
        (listed,) = await there.list(*NAMES)
        assert (listed.offset, listed.handed, listed.left_s > 0) == (0, 4, True)
        assert listed.iterator is not None
        again = await there.read(listed.iterator)
        assert [each.offset for each in again.messages][: listed.handed] == [0, 1, 2, 3]
        done = await there.commit(*NAMES, listed.iterator)
        assert done.position == 4
        assert done.following is not None
        assert await ground.committed() == {0: 4}
        await there.deliver(*NAMES, done.following, 2)
        await here.commit(*NAMES, done.following)
        assert await ground.committed() == {0: 6}
        await elsewhere.close()

    play(story)


def test_a_batch_can_be_committed_without_a_recorded_delivery() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)
        calls = ground.client.iterator_calls()
        iterator = await owned_iterator(calls, max_messages=6, in_flight=5)
        batch = await calls.read(iterator)
        assert (await calls.commit(*NAMES, batch, 3)).position == 3
        iterator = await calls.get(*NAMES, TOPIC, 0)
        assert (await calls.commit(*NAMES, await calls.read(iterator))).position == 9

    play(story)


def test_a_list_of_all_clients_contains_no_iterator_that_could_be_used() -> None:
    async def story(ground: Ground) -> None:
        calls = ground.client.iterator_calls()
        iterator = await owned_iterator(calls)
        (listed,) = await calls.list(GROUP)
        assert (listed.client_id, listed.iterator) == ("a", None)
        (own,) = await calls.list(*NAMES)
        assert isinstance(own, ListedIterator)
        assert own.iterator == iterator

    play(story)


def test_calls_of_a_client_outside_the_group_raise_unknown_member_id() -> None:
    async def story(ground: Ground) -> None:
        calls = ground.client.iterator_calls()
        with pytest.raises(MillstreamError) as unknown:
            await calls.heartbeat(*NAMES)
        assert code_of(unknown) is ErrorCode.UNKNOWN_MEMBER_ID
        with pytest.raises(MillstreamError) as nobody:
            await calls.list(*NAMES)
        assert code_of(nobody) is ErrorCode.GROUP_ID_NOT_FOUND
        await calls.join(*NAMES)
        assert (await calls.heartbeat(*NAMES)).owned == ()
        await calls.leave(*NAMES)
        with pytest.raises(MillstreamError) as gone:
            await calls.leave(*NAMES)
        assert code_of(gone) is ErrorCode.UNKNOWN_MEMBER_ID

    play(story)


def test_invalid_arguments_are_refused_by_name_before_a_request() -> None:
    async def story(ground: Ground) -> None:
        calls = ground.client.iterator_calls()
        for asked, named in (
            (lambda: calls.join("", "a"), "group=''"),
            (lambda: calls.join("g", ""), "client_id=''"),
            (lambda: calls.get(*NAMES, TOPIC, -1), "partition=-1"),
            (
                lambda: calls.get(*NAMES, TOPIC, 0, start="middle"),
                "start: 'middle' is not the start",
            ),
            (lambda: calls.get(*NAMES, TOPIC, 0, max_messages=0), "max_messages=0"),
        ):
            with pytest.raises(MillstreamError, match=named):
                await asked()

    play(story)


@pytest.mark.parametrize("endpoints", [[], [{"node_id": 2, "host": "broker-2", "port": 9092, "rack": None}]])
def test_a_refused_read_reports_the_leader_that_the_response_names(endpoints: list[dict[str, Any]]) -> None:
    iterator = GroupIterator(TOPIC, 0, 0, 10, 1, Address("", 0), b"token")
    fields = {
        "error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER.number,
        "current_leader": {"leader_id": 2, "leader_epoch": 7},
        "node_endpoints": endpoints,
    }
    frame = memoryview(write_response("ReadIterator", 0, fields))
    error = requests.read(iterator, max_bytes=1, max_wait_ms=0).decode(0, frame, 0)
    assert isinstance(error, NotLeaderError)
    broker = Broker(2, "broker-2", 9092) if endpoints else None
    assert (error.leader_id, error.leader_epoch, error.broker) == (2, 7, broker)


def test_a_refused_read_without_a_leader_is_a_plain_refusal() -> None:
    iterator = GroupIterator(TOPIC, 0, 0, 10, 1, Address("", 0), b"token")
    frame = memoryview(write_response("ReadIterator", 0, {"error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER.number}))
    error = requests.read(iterator, max_bytes=1, max_wait_ms=0).decode(0, frame, 0)
    assert isinstance(error, MillstreamError)
    assert not isinstance(error, NotLeaderError)
