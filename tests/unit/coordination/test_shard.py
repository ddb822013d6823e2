"""Tests that a shard appends the records of its machine, and sends the answers when these are durable."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from builders.coordination.site import KEY, Asked, ToySite, run_toys
from builders.coordination.toy_machine import Delete, Fail, Get, Put, ToyAnswer, ToyMachine, Wait
from millstream.coordination import shard
from millstream.model.errors import ErrorCode
from millstream.storage.store import FlushPolicy

OK = ErrorCode.NONE


def test_answers_and_notices_are_sent_once_the_log_is_durable() -> None:
    async def story(site: ToySite) -> None:
        await site.put("first")
        site.notices.clear()
        high_watermark = site.partition().high_watermark
        putting, reading = site.ask(Put(KEY, "second")), site.ask(Get(KEY))
        assert putting.answers == reading.answers == []
        assert site.notices == []
        assert await reading.answer() == ToyAnswer(value="second")
        assert putting.answers == [ToyAnswer(value="second")]
        assert site.notices == [f"{KEY}=second"]
        assert site.partition().high_watermark > high_watermark
        assert site.disk.holds_durably(b"second")

    run_toys(story)


def test_the_notices_of_a_command_are_sent_before_its_answer() -> None:
    async def story(site: ToySite) -> None:
        seen: list[list[str]] = []
        await site.put("a")
        for command in (Put(KEY, "b"), Put(KEY, "c"), Get(KEY)):
            site.toys.ask(KEY, command, lambda _: seen.append(list(site.notices)))
        await site.put("d")
        assert seen == [[f"{KEY}={each}" for each in values] for values in ("ab", "abc", "abc")]

    run_toys(story)


def test_an_answer_marked_at_once_is_sent_before_the_flush() -> None:
    async def story(site: ToySite) -> None:
        await site.put("first")
        putting, reading = site.ask(Put(KEY, "second")), site.ask(Get(KEY, at_once=True))
        assert reading.answers == [ToyAnswer(value="second")]
        assert putting.answers == []
        assert (await putting.answer()).error is OK

    run_toys(story)


@pytest.mark.parametrize("policy", [FlushPolicy.OS, FlushPolicy.INTERVAL])
def test_answers_are_sent_immediately_when_the_policy_needs_no_flush(policy: FlushPolicy) -> None:
    async def story(site: ToySite) -> None:
        await site.put("first")
        assert site.ask(Put(KEY, "second")).answers == [ToyAnswer(value="second")]

    run_toys(story, policy=policy)


def test_a_later_step_can_answer_an_earlier_command() -> None:
    async def story(site: ToySite) -> None:
        await site.put("a")
        waiting = [site.ask(Wait(KEY)) for _ in range(2)]
        await asyncio.sleep(10)
        assert [each.answers for each in waiting] == [[], []]
        await site.put("b")
        assert [each.answers for each in waiting] == [[ToyAnswer(value="b")]] * 2

    run_toys(story)


def test_a_cancelled_command_is_answered_once_with_not_coordinator() -> None:
    async def story(site: ToySite) -> None:
        await site.put("a")
        waiting, flushing = site.ask(Wait(KEY)), site.ask(Put("other" + KEY, "b"), KEY)
        waiting.cancel()
        waiting.cancel()
        flushing.cancel()
        assert waiting.answers == [ToyAnswer(ErrorCode.NOT_COORDINATOR)]
        assert flushing.answers == [], "its answer is decided and only waits for the flush"
        assert (await flushing.answer()).error is OK
        await site.put("c")
        assert len(waiting.answers) == 1

    run_toys(story)


def test_a_failing_caller_does_not_affect_other_callers() -> None:
    async def story(site: ToySite) -> None:
        def fail(_: ToyAnswer) -> None:
            raise ZeroDivisionError("the caller failed on purpose")

        await site.put("a")
        site.toys.ask(KEY, Put(KEY, "b"), fail)
        assert await site.put("c") is OK
        assert await site.get() == "c"
        assert len(site.loop.failures) == 1
        assert "could not be delivered" in site.loop.failures.pop()

    run_toys(story)


def test_a_notice_that_cannot_be_delivered_does_not_block_the_answer() -> None:
    async def story(site: ToySite) -> None:
        def fail(_: str) -> None:
            raise ZeroDivisionError("the receiver failed on purpose")

        await site.put("a")
        site.hooks[site.number()].notify = fail
        assert await site.put("b") is OK
        assert len(site.loop.failures) == 1
        assert "could not be delivered" in site.loop.failures.pop()

    run_toys(story)


def test_timers_fire_in_the_order_of_their_deadlines() -> None:
    async def story(site: ToySite) -> None:
        other = next(name for name in map(str, range(10)) if site.number(name) == site.number())
        await site.put("a", ttl_ms=30_000)
        await site.put("b", other, ttl_ms=10_000)
        site.notices.clear()
        await asyncio.sleep(9)
        await site.put("c", other, ttl_ms=10_000)
        await asyncio.sleep(9)
        assert site.notices == [f"{other}=c"]
        await asyncio.sleep(2)
        assert site.notices == [f"{other}=c", f"{other} expired"]
        await asyncio.sleep(11)
        assert site.notices == [f"{other}=c", f"{other} expired", f"{KEY} expired"]
        assert await site.get() is None

    run_toys(story)


@pytest.mark.parametrize("crashed", [False, True])
def test_a_restart_keeps_the_state_and_its_timers(crashed: bool) -> None:
    async def story(site: ToySite) -> None:
        await site.put("a")
        await site.put("b", "short", ttl_ms=5_000)
        await site.restart(crashed=crashed)
        assert [await site.get(), await site.get("short")] == ["a", "b"]
        await asyncio.sleep(6)
        assert [await site.get(), await site.get("short")] == ["a", None]

    run_toys(story)


def test_a_failed_flush_fails_waiting_commands_and_reloads_the_state() -> None:
    async def story(site: ToySite) -> None:
        await site.put("a")
        waiting = site.ask(Wait(KEY))
        site.notices.clear()
        site.disk.flush_error_chance = 1.0
        lost = [site.ask(Put("other" + KEY, "b"), KEY), site.ask(Get(KEY)), waiting]
        assert [(await each.answer()).error for each in lost] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
        assert (await site.ask(Get(KEY)).answer()).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert site.notices == []
        site.disk.flush_error_chance = 0.0
        await site.loaded()
        assert await site.get() == "a"
        assert await site.put("c") is OK

    run_toys(story)


def test_a_failed_append_fails_its_command_and_later_ones_succeed() -> None:
    async def story(site: ToySite) -> None:
        await site.put("a")
        site.disk.is_full = True
        for _ in range(5):
            error = await site.put("b")
            assert error in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            await asyncio.sleep(0.1)
        site.disk.is_full = False
        await asyncio.sleep(20)
        assert await site.get() == "a"
        assert await site.put("c") is OK

    run_toys(story)


def test_a_machine_is_discarded_when_its_log_was_truncated_between_steps() -> None:
    async def story(site: ToySite) -> None:
        await site.put("a")
        await asyncio.sleep(2)
        for number in range(20):  # A failed flush loses the data in some cases only.
            site.disk.flush_error_chance = 1.0
            assert await site.put(f"b{number}") is OK
            await asyncio.sleep(2)
            site.disk.flush_error_chance = 0.0
            await asyncio.sleep(10)
            assert not site.partition().is_suspended
            if site.partition().log.truncations:
                break
        assert site.partition().log.truncations, "the truncation came between two appends"
        assert await site.put("c") is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await site.loaded()
        incarnation = site.shards[site.number()].incarnation
        assert await site.put("d") is OK
        assert await site.get() == "d"
        assert site.shards[site.number()].incarnation == incarnation

    run_toys(story, policy=FlushPolicy.INTERVAL)


@pytest.mark.parametrize("place", ["machine", "encoding"])
def test_an_exception_fails_the_command_and_reloads_the_state(
    place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> memoryview:
        raise ZeroDivisionError("the encoder failed on purpose")

    async def story(site: ToySite) -> None:
        await site.put("a")
        waiting = site.ask(Wait(KEY))
        with monkeypatch.context() as planted:
            if place == "encoding":
                planted.setattr(shard, "encode", fail)
            asked = site.ask(Fail(KEY) if place == "machine" else Put(KEY, "b"))
        assert asked.answers == [ToyAnswer(ErrorCode.UNKNOWN_SERVER_ERROR)]
        assert waiting.answers == [ToyAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
        await site.loaded()
        assert await site.get() == "a"
        assert await site.put("c") is OK

    run_toys(story)
    assert "failed on purpose" in caplog.text


def test_an_exception_while_loading_is_logged_and_loading_is_retried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    faults = [ZeroDivisionError("the replay failed on purpose")]
    really_set = ToyMachine._set

    def set_or_fail(machine: ToyMachine, *values: Any) -> None:
        if faults:
            raise faults.pop()
        really_set(machine, *values)

    async def story(site: ToySite) -> None:
        await site.put("a")
        monkeypatch.setattr(ToyMachine, "_set", set_or_fail)
        await site.restart()
        assert await site.get() == "a"

    run_toys(story)
    assert not faults
    assert "failed on purpose" in caplog.text


def test_a_command_without_an_answer_waits_while_the_state_is_loading() -> None:
    async def story(site: ToySite) -> None:
        await site.put("a")
        site.toys.tell_all(Delete("unknown"))
        await site.stop()
        await site.start()
        assert (await site.ask(Get(KEY)).answer()).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        site.toys.tell_all(Delete(KEY))
        await site.loaded()
        assert await site.get() is None

    run_toys(story)


def test_close_refuses_waiting_commands_and_sends_flushed_answers() -> None:
    async def story(site: ToySite) -> None:
        await site.put("a", ttl_ms=10_000)
        waiting, putting = site.ask(Wait(KEY)), site.ask(Put("other" + KEY, "b"), KEY)
        toys, partition = site.toys, site.partition()
        await toys.stop()
        assert waiting.answers == [ToyAnswer(ErrorCode.NOT_COORDINATOR)]
        assert putting.answers == [ToyAnswer(value="b")]
        end = partition.log.end_offset
        late = site.ask(Put(KEY, "c"))
        assert late.answers == [ToyAnswer(ErrorCode.NOT_COORDINATOR)]
        toys.tell_all(Delete(KEY))
        await asyncio.sleep(60)
        assert partition.log.end_offset == end

    run_toys(story)


def test_hooks_get_every_record_with_its_offset() -> None:
    async def story(site: ToySite) -> None:
        for value in "abc":
            await site.ask(Put(KEY, value, second_key="other")).answer()
        told = list(site.hooks[site.number()].log)
        assert [offset for offset, _ in told] == list(range(6))
        assert all(one[0] < other[0] for one, other in pairwise(told))
        await site.restart(crashed=True)
        assert site.hooks[site.number()].log == told

    run_toys(story)


def test_hooks_get_the_answers_of_the_state_machine_and_no_exceptions() -> None:
    async def story(site: ToySite) -> None:
        await site.put("a")
        asked: list[Asked] = [site.ask(Put(KEY, "b")), site.ask(Fail(KEY))]
        assert [(await each.answer()).error for each in asked] == [OK, ErrorCode.UNKNOWN_SERVER_ERROR]
        assert site.hooks[site.number()].answers == [ToyAnswer(value="a"), ToyAnswer(value="b")]

    run_toys(story)
