"""One heap for all timers."""

from hypothesis import given
from hypothesis import strategies as st

from millstream.groups.timers import Timer, TimerKind, Timers


def timer(name: str) -> Timer:
    return Timer(TimerKind.SESSION, "g", name)


def taken(deadlines: Timers, now_ms: int, most: int = 100) -> list[str]:
    return [each.member_id for each in deadlines.due(now_ms, most)]


def test_timers_come_when_they_are_due_earliest_first() -> None:
    deadlines = Timers()
    for name, at_ms in (("c", 30), ("a", 10), ("b", 20)):
        deadlines.set(timer(name), at_ms)
    assert deadlines.next_ms == 10
    assert taken(deadlines, 9) == []
    assert taken(deadlines, 20) == ["a", "b"]
    assert deadlines.next_ms == 30


def test_a_timer_that_was_pushed_back_may_seem_due_earlier_but_none_ever_later() -> None:
    deadlines = Timers()
    assert not deadlines.may_be_before(100)
    deadlines.set(timer("a"), 10)
    deadlines.set(timer("a"), 30)
    assert deadlines.may_be_before(20)
    assert deadlines.next_ms == 30
    assert not deadlines.may_be_before(30)
    assert deadlines.may_be_before(31)


def test_no_more_are_taken_than_were_asked_for() -> None:
    deadlines = Timers()
    for name in "abc":
        deadlines.set(timer(name), 1)
    assert taken(deadlines, 1, most=2) == ["a", "b"]
    assert taken(deadlines, 1, most=2) == ["c"]


def test_a_timer_that_is_pushed_back_over_and_over_takes_no_more_room() -> None:
    deadlines = Timers()
    for number in range(100_000):
        deadlines.set(timer("a"), number)
    assert len(deadlines) == len(deadlines._heap) == 1
    assert deadlines.next_ms == 99_999


def test_timers_that_were_cancelled_or_came_earlier_give_their_room_back() -> None:
    deadlines = Timers()
    for number in range(10_000):
        deadlines.set(timer(str(number)), 10**9)
        deadlines.cancel(timer(str(number)))
        deadlines.set(timer("a"), 10**9 - number)
    assert len(deadlines) == 1
    assert len(deadlines._heap) < 200


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.none() | st.integers(0, 20), st.booleans())))
def test_whatever_is_set_cancelled_and_taken_comes_exactly_when_it_should(
    steps: list[tuple[str, int | None, bool]],
) -> None:
    deadlines, model = Timers(), dict[str, int]()
    for name, at_ms, take in steps:
        if at_ms is None:
            deadlines.cancel(timer(name))
            model.pop(name, None)
        elif take:
            expected = {each for each, due_ms in model.items() if due_ms <= at_ms}
            assert set(taken(deadlines, at_ms)) == expected
            for each in expected:
                del model[each]
        else:
            deadlines.set(timer(name), at_ms)
            model[name] = at_ms
        assert not model or deadlines.may_be_before(min(model.values()) + 1)
        assert deadlines.next_ms == min(model.values(), default=None)
        assert deadlines.at_ms(timer(name)) == model.get(name)
        assert len(deadlines) == len(model)
