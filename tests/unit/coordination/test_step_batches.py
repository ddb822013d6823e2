"""Tests that a shard appends the records of one step together, in one batch or several."""

import errno

import pytest
from msgspec.structs import replace

from builders.coordination.site import KEY, ToySite, run_toys
from builders.coordination.toy_machine import Put
from builders.partitions import read_all
from millstream.model.errors import ErrorCode
from millstream.model.ids import Offset
from millstream.records.header import each_batch
from millstream.storage.store import FlushPolicy
from millstream.testing.simulated.disk import DiskOperation

OK = ErrorCode.NONE


def test_the_records_of_a_step_are_one_batch() -> None:
    async def story(site: ToySite) -> None:
        await site.ask(Put(KEY, "a", second_key="other")).answer()
        data, _ = await site.partition().reader.read_cold(Offset(0), max_bytes=10_000)
        assert [header.next_offset - header.base_offset for _, header in each_batch(data)] == [2]
        assert len({record.timestamp for record in await read_all(site.partition())}) == 1

    run_toys(story)


def test_records_that_exceed_a_batch_are_split() -> None:
    async def story(site: ToySite) -> None:
        await site.put("a")
        partition = site.partition()
        partition.settings = replace(partition.settings, max_message_bytes=1_000)
        before = partition.log.end_offset
        assert (await site.ask(Put(KEY, "x" * 700, second_key="other")).answer()).error is OK
        data, _ = await partition.reader.read_cold(before, max_bytes=10_000)
        offsets = [header.base_offset for _, header in each_batch(data)]
        assert offsets == [before, before + 1]
        assert await site.put("x" * 2_000) is ErrorCode.MESSAGE_TOO_LARGE
        await site.loaded()
        assert await site.get() == "x" * 700

    run_toys(story)


@pytest.mark.parametrize("policy", FlushPolicy)
def test_no_batch_of_a_step_is_appended_when_a_later_one_is_too_large(policy: FlushPolicy) -> None:
    async def story(site: ToySite) -> None:
        await site.put("a")
        partition = site.partition()
        partition.settings = replace(partition.settings, max_message_bytes=1_000)
        end = partition.log.end_offset
        command = Put("first", "x" * 700, second_key="second" * 200)
        assert (await site.ask(command, KEY).answer()).error is ErrorCode.MESSAGE_TOO_LARGE
        assert partition.log.end_offset == end
        await site.loaded()
        assert site.machine().values == {KEY: "a"}
        await site.restart()
        assert site.machine().values == {KEY: "a"}

    run_toys(story, policy=policy)


@pytest.mark.parametrize("allowed", [0, 1])
def test_a_step_with_several_batches_is_one_write(allowed: int) -> None:
    async def story(site: ToySite) -> None:
        await site.put("a")
        partition = site.partition()
        partition.settings = replace(partition.settings, max_message_bytes=1_000)
        writes = list[str]()

        def refuse_further_writes(operation: DiskOperation) -> None:
            if operation.kind == "write" and operation.path.endswith(".log"):
                writes.append(operation.path)
                if len(writes) > allowed:
                    raise OSError(errno.ENOSPC, "no room")

        site.disk.before = refuse_further_writes
        answer = await site.ask(Put(KEY, "x" * 700, second_key="other")).answer()
        site.disk.before = None
        assert answer.error is (OK if allowed else ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert partition.log.end_offset == (3 if allowed else 1)
        await site.loaded()
        assert site.machine().values == ({KEY: "x" * 700, "other": "x" * 700} if allowed else {KEY: "a"})

    run_toys(story, policy=FlushPolicy.OS)


@pytest.mark.parametrize("policy", FlushPolicy)
def test_a_step_with_several_batches_is_answered_when_all_are_durable(policy: FlushPolicy) -> None:
    async def story(site: ToySite) -> None:
        await site.put("a")
        partition = site.partition()
        partition.settings = replace(partition.settings, max_message_bytes=1_000)
        putting = site.ask(Put(KEY, "x" * 700, second_key="other"))
        assert bool(putting.answers) == (policy is not FlushPolicy.ALWAYS)
        assert (await putting.answer()).error is OK
        assert partition.high_watermark == partition.log.end_offset == 3
        assert [offset for offset, _ in site.hooks[site.number()].log] == [0, 1, 2]
        await site.restart(crashed=policy is FlushPolicy.ALWAYS)
        assert site.machine().values == {KEY: "x" * 700, "other": "x" * 700}

    run_toys(story, policy=policy)
