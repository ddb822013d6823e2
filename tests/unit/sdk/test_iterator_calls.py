"""Single calls for clients of iterators, from one process or several: none of them keeps anything."""

from typing import Any

import pytest

from builders.sdk.simulated_consumers import GROUP, TOPIC, Ground, play
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.aio.iterator_calls import AsyncIteratorCalls
from millstream.sdk.iterating.requests import GroupIterator, ListedIterator

NAMES = (GROUP, "a")


async def owned_iterator(calls: AsyncIteratorCalls, **wanted: Any) -> GroupIterator:
    """The iterator of the only partition, once the group has shared out."""
    await calls.join(*NAMES)
    return await calls.get(*NAMES, TOPIC, 0, **wanted)


def code_of(caught: "pytest.ExceptionInfo[MillstreamError]") -> ErrorCode:
    return caught.value.code


def test_what_one_process_has_handed_on_another_commits() -> None:
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


def test_a_batch_is_committed_without_being_handed_on_too() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)
        calls = ground.client.iterator_calls()
        iterator = await owned_iterator(calls, max_messages=6, in_flight=5)
        batch = await calls.read(iterator)
        assert (await calls.commit(*NAMES, batch, 3)).position == 3
        iterator = await calls.get(*NAMES, TOPIC, 0)
        assert (await calls.commit(*NAMES, await calls.read(iterator))).position == 9

    play(story)


def test_everybody_is_listed_without_iterators() -> None:
    async def story(ground: Ground) -> None:
        calls = ground.client.iterator_calls()
        iterator = await owned_iterator(calls)
        (listed,) = await calls.list(GROUP)
        assert (listed.client_id, listed.iterator) == ("a", None)
        (own,) = await calls.list(*NAMES)
        assert isinstance(own, ListedIterator)
        assert own.iterator == iterator

    play(story)


def test_who_is_not_in_the_group_is_told_so() -> None:
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


def test_what_makes_no_sense_is_named_before_anybody_is_asked() -> None:
    async def story(ground: Ground) -> None:
        calls = ground.client.iterator_calls()
        for asked, named in (
            (lambda: calls.join("", "a"), "group=''"),
            (lambda: calls.join("g", ""), "client_id=''"),
            (lambda: calls.get(*NAMES, TOPIC, -1), "partition=-1"),
            (lambda: calls.get(*NAMES, TOPIC, 0, start="middle"), "start='middle'"),
            (lambda: calls.get(*NAMES, TOPIC, 0, max_messages=0), "max_messages=0"),
        ):
            with pytest.raises(MillstreamError, match=named):
                await asked()

    play(story)
