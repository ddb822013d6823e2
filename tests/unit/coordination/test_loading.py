"""Tests that a shard loads its state from the log without blocking the event loop."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from builders.coordination.site import KEY, ToySite, run_toys
from builders.coordination.toy_machine import (
    LOADED_AT_ONCE,
    UNREADABLE,
    Get,
    ToyAnswer,
    ToyEffects,
    ToyMachine,
)
from millstream.coordination import loading
from millstream.coordination.effects import LogRecord, Now
from millstream.coordination.loading import READ_BYTES, SLICE
from millstream.coordination.record_batches import encode
from millstream.model.errors import ErrorCode


async def put_many(site: ToySite, count: int, value: str = "value", ttl_ms: int = -1) -> None:
    errors = await asyncio.gather(*(site.put(value, f"key-{number}", ttl_ms) for number in range(count)))
    assert set(errors) == {ErrorCode.NONE}


def append(site: ToySite, *values: bytes) -> None:
    """Appends records like another writer, and does not wait for their flush."""
    records = [LogRecord(KEY.encode(), value) for value in values]
    site.partition().append(encode(records, site.clock.wall_ms()))


def test_commands_are_refused_while_the_log_is_loading() -> None:
    async def story(site: ToySite) -> None:
        await put_many(site, 20, "x" * (READ_BYTES // 5))
        await site.stop()
        await site.start()
        assert site.ask(Get(KEY)).answers == [ToyAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
        assert {each.error for each in await site.toys.request_all(Get(KEY))} == {
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        }
        await site.loaded()
        assert [len(await site.get(f"key-{number}") or "") for number in range(20)] == [READ_BYTES // 5] * 20

    run_toys(story)


def test_an_empty_log_is_loaded_immediately() -> None:
    async def story(site: ToySite) -> None:
        await site.toys.ensure()
        assert site.ask(Get(KEY)).answers == [ToyAnswer()]

    run_toys(story)


def test_shards_replay_one_slice_per_turn_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = [0]
    really_replay = ToyMachine.replay

    def replay(machine: ToyMachine, record: LogRecord) -> None:
        if not turns[-1]:
            asyncio.get_running_loop().call_soon(turns.append, 0)
        turns[-1] += 1
        really_replay(machine, record)

    async def story(site: ToySite) -> None:
        await put_many(site, 6 * SLICE)
        monkeypatch.setattr(ToyMachine, "replay", replay)
        await site.restart()
        assert sum(turns) == 6 * SLICE
        assert max(turns) <= SLICE

    run_toys(story)


def test_the_state_machine_completes_loading_in_slices_between_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    slices = 0
    really_loading = ToyMachine.loading

    def counted(machine: ToyMachine, now: Callable[[], Now], effects: ToyEffects) -> Iterator[None]:
        nonlocal slices
        for _ in really_loading(machine, now, effects):
            slices += 1
            asyncio.get_running_loop().call_soon(turns.append, slices)
            before = len(turns)
            yield
            assert len(turns) > before, "other work runs between two slices"

    turns: list[int] = []

    async def story(site: ToySite) -> None:
        await put_many(site, 10 * LOADED_AT_ONCE, ttl_ms=60_000)
        monkeypatch.setattr(ToyMachine, "loading", counted)
        await site.stop()
        await site.start()
        await site.loaded()
        assert slices >= 8
        await asyncio.sleep(61)
        assert await site.get("key-7") is None

    run_toys(story)


def test_a_record_that_cannot_be_decoded_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    async def story(site: ToySite) -> None:
        await site.put("a")
        await site.end()
        append(site, UNREADABLE, b"-1|b", UNREADABLE)
        await site.begin_again()
        await site.loaded()
        assert await site.get() == "b"

    run_toys(story)
    skipped = [record for record in caplog.records if "undecodable" in record.getMessage()]
    assert [record.__dict__["offset"] for record in skipped] == [1, 3]


def test_loading_waits_for_the_high_watermark(caplog: pytest.LogCaptureFixture) -> None:
    async def story(site: ToySite) -> None:
        await site.toys.ensure()
        await site.end()
        append(site, b"-1|b")
        partition = site.partition()
        assert partition.high_watermark < partition.log.end_offset
        await site.begin_again()
        await site.loaded()
        assert await site.get() == "b"

    run_toys(story)
    assert not [record for record in caplog.records if "loading failed" in record.getMessage()]


def test_records_that_arrive_while_loading_are_replayed() -> None:
    async def story(site: ToySite) -> None:
        await site.put("a")
        await site.end()
        append(site, b"-1|b")
        await site.begin_again()
        append(site, b"-1|c")
        await site.loaded()
        assert await site.get() == "c"
        assert await site.put("d") is ErrorCode.NONE

    run_toys(story)


def test_loading_is_retried_when_records_do_not_become_durable(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loading, "READABLE_WITHIN_S", 0.01)

    async def story(site: ToySite) -> None:
        await site.put("a")
        await site.end()
        site.disk.flush_error_chance = 1.0
        append(site, b"-1|b")
        await site.begin_again()
        await asyncio.sleep(3)
        site.disk.flush_error_chance = 0.0
        await site.loaded()
        assert await site.get() in ("a", "b")
        assert await site.put("c") is ErrorCode.NONE

    run_toys(story)
    assert [record for record in caplog.records if "loading failed" in record.getMessage()]


def test_compaction_does_not_change_the_state() -> None:
    async def story(site: ToySite) -> None:
        await site.put("a")
        log = site.partition().log
        for number in range(3_000):
            await site.put(f"{number:0500}")
        size_bytes = log.size_bytes
        await site.partitions.clean()
        assert log.size_bytes < size_bytes
        await site.restart(crashed=True)
        assert await site.get() == f"{2_999:0500}"

    run_toys(story)
