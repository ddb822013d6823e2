"""Tests the heap of timers."""

from hypothesis import given
from hypothesis import strategies as st

from millstream.coordination.timers import Timers


def taken(timers: Timers[str], now_ms: int, most: int = 100) -> list[str]:
    return list(timers.due(now_ms, most=most))


def test_due_timers_are_returned_earliest_first() -> None:
    timers: Timers[str] = Timers()
    for name, at_ms in (("c", 30), ("a", 10), ("b", 20)):
        timers.set(name, at_ms)
    assert timers.next_ms == 10
    assert taken(timers, 9) == []
    assert taken(timers, 20) == ["a", "b"]
    assert timers.next_ms == 30


def test_may_be_before_is_true_whenever_a_timer_is_due() -> None:
    timers: Timers[str] = Timers()
    assert not timers.may_be_before(100)
    timers.set("a", 10)
    timers.set("a", 30)
    assert timers.may_be_before(20)
    assert timers.next_ms == 30
    assert not timers.may_be_before(30)
    assert timers.may_be_before(31)


def test_due_returns_at_most_the_requested_number() -> None:
    timers: Timers[str] = Timers()
    for name in "abc":
        timers.set(name, 1)
    assert taken(timers, 1, most=2) == ["a", "b"]
    assert taken(timers, 1, most=2) == ["c"]


def test_a_timer_that_is_postponed_repeatedly_has_one_heap_entry() -> None:
    timers: Timers[str] = Timers()
    for number in range(100_000):
        timers.set("a", number)
    assert len(timers) == len(timers._heap) == 1
    assert timers.next_ms == 99_999


def test_the_heap_shrinks_after_timers_are_cancelled_or_set_earlier() -> None:
    timers: Timers[str] = Timers()
    for number in range(10_000):
        timers.set(str(number), 10**9)
        timers.cancel(str(number))
        timers.set("a", 10**9 - number)
    assert len(timers) == 1
    assert len(timers._heap) < 200


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.none() | st.integers(0, 20), st.booleans())))
def test_random_operations_match_a_dictionary_of_due_times(
    steps: list[tuple[str, int | None, bool]],
) -> None:
    timers: Timers[str] = Timers()
    model: dict[str, int] = {}
    for name, at_ms, take in steps:
        if at_ms is None:
            timers.cancel(name)
            model.pop(name, None)
        elif take:
            expected = {each for each, due_ms in model.items() if due_ms <= at_ms}
            assert set(taken(timers, at_ms)) == expected
            for each in expected:
                del model[each]
        else:
            timers.set(name, at_ms)
            model[name] = at_ms
        assert not model or timers.may_be_before(min(model.values()) + 1)
        assert timers.next_ms == min(model.values(), default=None)
        assert timers.at_ms(name) == model.get(name)
        assert len(timers) == len(model)
