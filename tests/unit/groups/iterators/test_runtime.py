"""Tests iterators in the broker's runtime: issued and announced only when durable, and kept across a crash."""

import asyncio

from msgspec.structs import replace

from builders.groups.site import EVENTS, GROUP, GroupSite, run_groups
from millstream.groups.commands import CommitIterator, GetIterator, IteratorJoin, ListIterators
from millstream.groups.iterators.iterator import BEGINNING, Iterator, IteratorNotice
from millstream.groups.responses import Answer, IteratorClientResponse, IteratorList, IteratorResponse
from millstream.model.errors import ErrorCode
from millstream.model.ids import Offset


async def joined(site: GroupSite) -> None:
    answer = await site.ask(IteratorJoin(GROUP, "a", "program", "/host"), IteratorClientResponse)
    assert answer.error is ErrorCode.NONE


def asking(partition: int = 0) -> GetIterator:
    return GetIterator(GROUP, "a", EVENTS, partition, 10, -1, Offset(BEGINNING))


async def given(site: GroupSite, partition: int = 0) -> Iterator:
    answer = await site.ask(asking(partition), IteratorResponse)
    assert answer.given is not None, answer
    return answer.given.iterator


def test_notices_are_sent_after_the_flush_and_before_the_answer() -> None:
    async def story(site: GroupSite) -> None:
        await joined(site)
        heard: list[tuple[Answer, list[IteratorNotice]]] = []
        done = asyncio.Event()

        def reply(answer: Answer) -> None:
            heard.append((answer, list(site.told)))
            done.set()

        site.groups.ask(asking().group_id, asking(), reply)
        assert not heard, "the record is on its way to the disk"
        assert not site.told
        await done.wait()
        ((answer, told),) = heard
        assert isinstance(answer, IteratorResponse)
        assert answer.given is not None
        assert [each.issue for each in told] == [answer.given.iterator.issue]

    run_groups(story)


def test_a_failed_flush_sends_neither_notice_nor_iterator() -> None:
    async def story(site: GroupSite) -> None:
        await joined(site)
        site.disk.flush_error_chance = 1.0
        answer = await site.ask(asking(), IteratorResponse)
        assert (answer.error, answer.given) == (ErrorCode.KAFKA_STORAGE_ERROR, None)
        assert not site.told
        site.disk.flush_error_chance = 0.0

    run_groups(story)


def test_issued_iterators_and_commits_survive_a_crash() -> None:
    async def story(site: GroupSite) -> None:
        await joined(site)
        first = await given(site)
        committed = await site.ask(CommitIterator(GROUP, "a", replace(first, offset=0), 7), IteratorResponse)
        other = await given(site, 1)
        await site.restart(crashed=True)
        assert await site.committed() == {0: 7}
        listed = await site.ask(ListIterators(GROUP, "a"), IteratorList)
        assert committed.given is not None
        assert {each.iterator for each in listed.given} == {committed.given.iterator, other}
        assert await given(site, 1) == other

    run_groups(story)
