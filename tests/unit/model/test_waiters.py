"""Checks that waiting readers are woken once and in order, and that a failing one affects no other."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.model.waiters import Waiters


def _waiting(offsets: list[int]) -> tuple[Waiters, list[int]]:
    waiters, woken = Waiters(), list[int]()
    for index, offset in enumerate(offsets):
        waiters.add(offset, lambda index=index: woken.append(index))  # type: ignore[misc]  # bound as default
    return waiters, woken


@pytest.mark.parametrize(
    ("end_offset", "expected"), [(3, []), (4, [1, 3]), (5, [1, 3]), (6, [1, 3, 0]), (100, [1, 3, 0, 2])]
)
def test_waiters_below_the_end_offset_are_woken_once_in_order(end_offset: int, expected: list[int]) -> None:
    waiters, woken = _waiting([5, 3, 50, 3])
    waiters.wake_below(end_offset)
    assert woken == expected
    waiters.wake_below(end_offset)
    assert woken == expected, "each only once"
    assert len(waiters) == 4 - len(expected)


def test_wake_all_wakes_every_waiter_once() -> None:
    waiters, woken = _waiting([5, 3, 50])
    waiters.wake_all()
    assert woken == [1, 0, 2]
    assert not waiters


def test_a_cancelled_waiter_is_not_woken_and_may_cancel_again() -> None:
    waiters, woken = _waiting([1])
    cancel = waiters.add(1, lambda: woken.append(99))
    cancel()
    cancel()
    assert len(waiters) == 1
    waiters.wake_below(10)
    cancel()
    assert woken == [0]
    assert len(waiters) == 0


def test_a_callback_may_wait_again_and_cancel_others() -> None:
    waiters, woken = Waiters(), list[str]()

    def first() -> None:
        woken.append("first")
        cancel_second()
        waiters.add(20, lambda: woken.append("again"))

    waiters.add(1, first)
    cancel_second = waiters.add(2, lambda: woken.append("second"))
    waiters.wake_all()
    assert woken == ["first"]
    assert len(waiters) == 1
    waiters.wake_below(21)
    assert woken == ["first", "again"]


def test_a_failing_callback_does_not_prevent_waking_the_others() -> None:
    async def story() -> tuple[list[int], list[dict[str, Any]]]:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        waiters, woken = Waiters(), list[int]()

        def fail() -> None:
            raise RuntimeError("broken reader")

        waiters.add(0, fail)
        waiters.add(0, lambda: woken.append(1))
        waiters.wake_below(1)
        return woken, reported

    woken, reported = asyncio.run(story())
    assert woken == [1]
    assert "broken reader" in str(reported[0]["exception"])


def test_cancelled_waiters_are_swept_from_the_queue() -> None:
    waiters = Waiters()
    waiters.add(1_000_000, lambda: None)
    for offset in range(10_000):
        waiters.add(offset, lambda: None)()
    assert len(waiters) == 1
    assert len(waiters._queue) + len(waiters._late) < 100


@given(
    st.lists(st.tuples(st.sampled_from(["add", "cancel", "wake"]), st.integers(0, 30)), max_size=200),
)
@settings(deadline=None)
def test_random_steps_wake_exactly_the_live_waiters_below_the_offset(steps: list[tuple[str, int]]) -> None:
    waiters, woken = Waiters(), list[int]()
    cancels, expected = list[Any](), dict[int, int]()
    for number, (step, value) in enumerate(steps):
        if step == "add":
            cancels.append((number, waiters.add(value, lambda number=number: woken.append(number))))  # type: ignore[misc]  # bound as default
            expected[number] = value
        elif step == "cancel" and cancels:
            gone, cancel = cancels[value % len(cancels)]
            cancel()
            expected.pop(gone, None)
        elif step == "wake":
            due = [n for n, offset in sorted(expected.items(), key=lambda item: (item[1], item[0])) if offset < value]
            woken.clear()
            waiters.wake_below(value)
            assert woken == due
            for n in due:
                del expected[n]
        assert len(waiters) == len(expected)
