"""Tests the order, limits, memory and failures of the response queue."""

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.dispatch.open_changes import APPENDS, TOPICS, NamedChange
from millstream.broker.dispatch.request import Answer, DeferredResponse, Work
from millstream.broker.dispatch.response_queue import PENDING_BYTES_MAX, PENDING_MAX, ResponseQueue
from millstream.broker.dispatch.work_runner import WorkRunner
from millstream.broker.net.client_info import ClientInfo
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.broker.net.outbox import Outbox
from millstream.broker.net.push_channel import StreamingRequest
from millstream.model.errors import MillstreamError
from millstream.testing.simulated.clock import ManualClock

FRAME_BYTES = 100


class Sent:
    """Records the responses that the queue puts into the outbox."""

    def __init__(self) -> None:
        self.correlation_ids: list[int] = []

    def put(self, correlation_id: int, flexible: bool, answer: Answer) -> None:
        self.correlation_ids.append(correlation_id)


class Stream:
    def __init__(self) -> None:
        self.begun = 0

    def begin(self) -> None:
        self.begun += 1

    def go_on(self) -> None: ...

    def end(self, error: MillstreamError) -> None: ...

    def drop(self) -> None: ...


class Scene:
    def __init__(self) -> None:
        self.memory = MemoryLimits()
        self.sent = Sent()
        self.streams: dict[int, StreamingRequest] = {}
        self.failures: list[BaseException] = []
        self.answered = 0
        self.clock = ManualClock()
        self.durations_s: list[float] = []
        self.tasks: dict[asyncio.Task[Answer | None], None] = {}
        self.queue = ResponseQueue(
            self.memory,
            cast(Outbox, self.sent),
            self.streams,
            WorkRunner(self.tasks, self.failures.append, ClientInfo()),
            now_s=self.clock.monotonic_s,
            answered=self._answered,
            fail=self.failures.append,
        )

    def _answered(self) -> None:
        self.answered += 1

    def add(
        self, correlation_id: int, result: Answer | DeferredResponse | Work | None, size: int = FRAME_BYTES
    ) -> None:
        self.memory.pool(size).take(size)
        self.queue.add(correlation_id, False, size, result, self.durations_s.append, self.clock.monotonic_s())

    def check_nothing_is_held(self) -> None:
        assert len(self.queue) == 0
        assert not self.queue.is_full
        assert self.memory.incoming_bytes == 0
        assert self.memory.outgoing_bytes == 0


@given(st.lists(st.sampled_from(["now", "later", "none", "nothing later"]), max_size=30), st.randoms())
def test_responses_are_sent_in_the_order_of_requests(kinds: list[str], random: Random) -> None:
    scene = Scene()
    finish: list[Callable[[], None]] = []
    expected = []
    for correlation_id, kind in enumerate(kinds):
        later = DeferredResponse()
        if kind == "now":
            scene.add(correlation_id, b"at once")
        elif kind == "none":
            scene.add(correlation_id, None)
        else:
            scene.add(correlation_id, later)
            answer = b"later" if kind == "later" else None
            finish.append(partial(later.finish, answer))
        if kind in ("now", "later"):
            expected.append(correlation_id)
    random.shuffle(finish)
    for each in finish:
        each()
        assert scene.sent.correlation_ids == expected[: len(scene.sent.correlation_ids)]
    assert scene.sent.correlation_ids == expected
    scene.check_nothing_is_held()


def test_a_ready_response_behind_a_pending_one_counts_as_outgoing_memory() -> None:
    scene = Scene()
    first = DeferredResponse()
    scene.add(1, first)
    scene.add(2, b"12345")
    assert scene.memory.outgoing_bytes == 5
    first.finish(b"")
    assert scene.sent.correlation_ids == [1, 2]
    assert scene.answered == 1
    scene.check_nothing_is_held()


@pytest.mark.parametrize(("count", "size"), [(PENDING_MAX, FRAME_BYTES), (2, PENDING_BYTES_MAX // 2)])
def test_the_queue_is_full_at_its_limits_until_a_response_is_sent(count: int, size: int) -> None:
    scene = Scene()
    pending = [DeferredResponse() for _ in range(count)]
    for number, later in enumerate(pending):
        assert not scene.queue.is_full
        scene.add(number, later, size)
    assert scene.queue.is_full
    pending[-1].finish(b"")
    assert scene.queue.is_full, "it waits for those before it"
    pending[0].finish(b"")
    assert not scene.queue.is_full


def test_the_kinds_of_open_changes_are_forgotten_with_the_last_response() -> None:
    scene = Scene()
    laters = [DeferredResponse(change=NamedChange(kind)) for kind in (APPENDS, TOPICS)]
    for number, later in enumerate(laters):
        scene.add(number, later)
    assert scene.queue.changing == APPENDS | TOPICS
    for later in laters:
        later.finish(b"")
        assert later.change is None
    assert scene.queue.changing == 0
    scene.check_nothing_is_held()


def test_drop_releases_the_memory_of_responses_and_calls_their_hurry_callbacks() -> None:
    scene = Scene()
    hurried: list[int] = []
    for number in range(3):
        scene.add(number, DeferredResponse(partial(hurried.append, number)))
    scene.add(3, b"ready")
    scene.queue.drop()
    assert hurried == [0, 1, 2]
    assert scene.sent.correlation_ids == []
    scene.check_nothing_is_held()


def test_a_deferred_failure_is_reported_and_later_responses_are_not_sent() -> None:
    scene = Scene()
    failing, behind = DeferredResponse(), DeferredResponse()
    scene.add(1, failing)
    scene.add(2, behind)
    error = RuntimeError("unexpected")
    failing.fail(error)
    assert scene.failures == [error]
    assert scene.sent.correlation_ids == []


@pytest.mark.parametrize("is_pending", [False, True])
def test_a_streaming_request_begins_with_its_response(is_pending: bool) -> None:
    scene, stream = Scene(), Stream()
    scene.streams[7] = stream
    later = DeferredResponse()
    scene.add(7, later if is_pending else b"subscribed")
    assert stream.begun == (not is_pending)
    later.finish(b"subscribed")
    assert stream.begun == 1


def test_completed_work_sends_its_response_and_an_exception_is_reported() -> None:
    async def works() -> bytes:
        return b"done"

    async def fails() -> bytes:
        raise RuntimeError("unexpected")

    async def test() -> None:
        scene = Scene()
        scene.add(1, Work(works()))
        scene.add(2, Work(fails()))
        assert len(scene.tasks) == 2
        await asyncio.wait(scene.tasks)
        assert scene.tasks == {}
        assert scene.sent.correlation_ids == [1]
        (error,) = scene.failures
        assert isinstance(error, RuntimeError)

    asyncio.run(test())


def test_cancelled_work_is_reported_as_cancelled() -> None:
    async def test() -> None:
        scene = Scene()
        scene.add(1, Work(asyncio.sleep(100, b"")))
        for task in scene.tasks:
            task.cancel()
        await asyncio.wait(scene.tasks)
        (error,) = scene.failures
        assert isinstance(error, asyncio.CancelledError)

    asyncio.run(test())
