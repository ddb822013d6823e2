"""Checks that the checker finds each kind of violation, and none in a correct history."""

import pytest

from millstream.model.names import TopicPartition
from millstream.testing.simulation.checker import Promises, Violation, ViolationKind, check
from millstream.testing.simulation.history import FinalLog, History

PARTITION = TopicPartition("orders", 0)
WEAK = Promises(survives_power_loss=False)


def write(history: History, values: str, offset: int, *, producer: str = "p", durable: bool | None = None) -> None:
    """Add an acknowledged write of one-letter values."""
    write = history.ask_write(producer, PARTITION, [value.encode() for value in values])
    history.stored(write, offset, durable=durable)


def read(history: History, values: str, offset: int, *, start: int = 0, end: int | None = None) -> None:
    """Add an answered read from `offset` on."""
    read = history.ask_read("r", PARTITION, offset)
    records = [(offset + place, value.encode()) for place, value in enumerate(values)]
    history.answered(read, records, start, log_end=offset + len(values) if end is None else end)


def log(values: str, start: int = 0, end: int | None = None) -> FinalLog:
    records = tuple((start + place, value.encode()) for place, value in enumerate(values))
    return FinalLog(start, start + len(values) if end is None else end, records)


def kinds(history: History, final: FinalLog, promises: Promises | None = None) -> set[ViolationKind]:
    return {violation.kind for violation in check(history, {PARTITION: final}, promises)}


@pytest.fixture
def history() -> History:
    """A history with two acknowledged writes, `ab` and `cd`; a reader has seen the first."""
    history = History()
    write(history, "ab", 0)
    read(history, "ab", 0)
    write(history, "cd", 2)
    return history


def test_a_correct_history_has_no_violations(history: History) -> None:
    unknown = history.ask_write("p", PARTITION, [b"e"])
    history.abandoned(unknown, "timed out")
    refused = history.ask_write("p", PARTITION, [b"f"])
    history.refused(refused, "too large")
    read(history, "cd", 2)
    assert kinds(history, log("abcd")) == set()
    assert kinds(history, log("abcde")) == set()


def test_a_missing_acknowledged_message_is_lost(history: History) -> None:
    assert kinds(history, log("abc")) == {ViolationKind.LOST}


def test_a_message_acknowledged_without_an_offset_may_be_anywhere(history: History) -> None:
    write(history, "e", -1)
    assert kinds(history, log("abcde")) == set()
    assert kinds(history, log("abcd")) == {ViolationKind.LOST}


def test_a_message_stored_twice_is_doubled(history: History) -> None:
    assert kinds(history, log("abcdd")) == {ViolationKind.DOUBLED}


def test_a_retry_stored_again_at_another_offset_is_doubled() -> None:
    history = History()
    write(history, "a", 1)
    assert kinds(history, log("aa")) == {ViolationKind.DOUBLED}


def test_messages_of_one_producer_in_the_wrong_order_are_reordered() -> None:
    history = History()
    first = history.ask_write("p", PARTITION, [b"a"])
    second = history.ask_write("p", PARTITION, [b"b"])
    history.stored(second, 0)
    history.stored(first, 1)
    assert kinds(history, log("ba")) == {ViolationKind.REORDERED}


def test_messages_of_two_producers_may_be_stored_in_any_order() -> None:
    history = History()
    first = history.ask_write("p", PARTITION, [b"a"])
    second = history.ask_write("q", PARTITION, [b"b"])
    history.stored(second, 0)
    history.stored(first, 1)
    assert kinds(history, log("ba")) == set()


def test_content_that_was_never_sent_is_altered(history: History) -> None:
    assert kinds(history, log("abcX")) == {ViolationKind.ALTERED, ViolationKind.LOST}
    assert kinds(history, log("abcdX")) == {ViolationKind.ALTERED}


def test_altered_content_in_a_read_is_found(history: History) -> None:
    read(history, "X", 4)
    assert ViolationKind.ALTERED in kinds(history, log("abcd"))


def test_a_message_at_another_offset_than_reported_is_misplaced() -> None:
    history = History()
    history.ask_write("q", PARTITION, [b"x"])
    write(history, "a", 0)
    assert kinds(history, log("xa")) == {ViolationKind.MISPLACED}


def test_a_message_lost_after_a_read_has_vanished(history: History) -> None:
    history.ask_write("p", PARTITION, [b"e"])
    read(history, "cde", 2)
    assert kinds(history, log("abcd")) == {ViolationKind.VANISHED}


def test_a_read_message_below_a_moved_start_has_vanished_without_retention() -> None:
    history = History()
    history.ask_write("p", PARTITION, [b"a", b"b"])
    read(history, "ab", 0)
    assert kinds(history, log("b", start=1)) == {ViolationKind.VANISHED}


def test_an_offset_of_two_messages_is_reused() -> None:
    history = History()
    history.ask_write("p", PARTITION, [b"a"])
    read(history, "a", 0)
    history.crashed(power_loss=True)
    write(history, "b", 0, producer="q")
    assert kinds(history, log("b")) == {ViolationKind.OFFSET_REUSED, ViolationKind.VANISHED}


def test_missing_offsets_in_the_log_are_a_gap(history: History) -> None:
    holed = FinalLog(0, 5, ((0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")))
    assert kinds(history, holed) == {ViolationKind.GAP}
    history.ask_write("p", PARTITION, [b"e"])
    jumping = FinalLog(0, 6, ((0, b"a"), (1, b"b"), (2, b"c"), (3, b"d"), (5, b"e")))
    assert kinds(history, jumping) == {ViolationKind.GAP}


def test_skipped_offsets_in_a_read_are_a_gap(history: History) -> None:
    skipping = history.ask_read("r", PARTITION, 2)
    history.answered(skipping, [(3, b"d")], 0, log_end=4)
    assert kinds(history, log("abcd")) == {ViolationKind.GAP}


def test_a_read_below_the_log_start_may_begin_at_the_start() -> None:
    history = History()
    write(history, "abcd", 0)
    late = history.ask_read("r", PARTITION, 0)
    history.answered(late, [(2, b"c"), (3, b"d")], 2, log_end=4)
    assert kinds(history, log("cd", start=2), Promises(keeps_everything=False)) == set()


def test_a_read_may_return_messages_that_retention_removes_meanwhile() -> None:
    history = History()
    write(history, "abcd", 0)
    racing = history.ask_read("r", PARTITION, 1)
    history.answered(racing, [(1, b"b"), (2, b"c")], 3, log_end=4)
    assert kinds(history, log("d", start=3), Promises(keeps_everything=False)) == set()
    racing.records = ((2, b"c"),)
    assert kinds(history, log("d", start=3), Promises(keeps_everything=False)) == {ViolationKind.GAP}


def test_a_decreasing_log_start_is_found() -> None:
    history = History()
    write(history, "abcd", 0)
    read(history, "d", 3, start=3)
    read(history, "d", 3, start=2)
    assert kinds(history, log("cd", start=2), Promises(keeps_everything=False)) == {ViolationKind.START_WENT_BACK}


def test_the_log_start_may_decrease_after_a_crash() -> None:
    history = History()
    write(history, "abcd", 0)
    read(history, "d", 3, start=3)
    under_way = history.ask_read("s", PARTITION, 3)
    history.crashed(power_loss=False)
    history.answered(under_way, [(3, b"d")], 3, log_end=4)
    read(history, "d", 3, start=2)
    assert kinds(history, log("cd", start=2), Promises(keeps_everything=False)) == set()


def test_a_decreasing_log_end_is_found(history: History) -> None:
    read(history, "", 2, end=4)
    read(history, "", 2, end=3)
    assert kinds(history, log("abcd")) == {ViolationKind.END_WENT_BACK}


def test_a_log_end_below_acknowledged_messages_is_found(history: History) -> None:
    read(history, "", 2, end=2)
    assert kinds(history, log("abcd")) == {ViolationKind.END_WENT_BACK}


def test_concurrent_reads_may_return_log_ends_in_any_order(history: History) -> None:
    early = history.ask_read("r", PARTITION, 2)
    later = history.ask_read("s", PARTITION, 2)
    history.answered(later, [(2, b"c"), (3, b"d")], 0, log_end=5)
    history.answered(early, [(2, b"c"), (3, b"d")], 0, log_end=4)
    assert kinds(history, log("abcd")) == set()


def test_an_acknowledgement_before_the_flush_is_found_without_a_loss(history: History) -> None:
    write(history, "e", 4, durable=False)
    write(history, "f", 5, durable=True)
    assert kinds(history, log("abcdef")) == {ViolationKind.NOT_DURABLE}
    assert kinds(history, log("abcdef"), WEAK) == set()


def test_a_refused_but_stored_write_is_found(history: History) -> None:
    refused = history.ask_write("p", PARTITION, [b"e"])
    history.refused(refused, "too large")
    assert kinds(history, log("abcde")) == {ViolationKind.REFUSED_BUT_STORED}


def test_an_unknown_write_may_be_stored_late_only_if_abandoned() -> None:
    def late(abandoned: bool) -> set[ViolationKind]:
        history = History()
        first = history.ask_write("p", PARTITION, [b"a"])
        if abandoned:
            history.abandoned(first, "timed out")
        write(history, "b", 0)
        return kinds(history, log("ba"))

    assert late(abandoned=True) == set()
    assert late(abandoned=False) == {ViolationKind.REORDERED}


def test_a_weak_policy_may_lose_the_tail_only_in_a_power_loss(history: History) -> None:
    history.crashed(power_loss=False)
    assert kinds(history, log("a"), WEAK) == {ViolationKind.LOST, ViolationKind.VANISHED}
    history.crashed(power_loss=True)
    write(history, "x", 1)
    read(history, "x", 1)
    assert kinds(history, log("ax"), WEAK) == set()
    assert kinds(history, log("ax")) == {
        ViolationKind.LOST,
        ViolationKind.VANISHED,
        ViolationKind.OFFSET_REUSED,
        ViolationKind.END_WENT_BACK,
    }


def test_a_weak_policy_may_lose_only_the_tail_after_a_failed_flush(history: History) -> None:
    weaker = Promises(survives_power_loss=False, survives_flush_errors=False)
    write(history, "x", 1)
    read(history, "x", 1)
    assert kinds(history, log("ax"), weaker) == set()
    assert kinds(history, log("aax"), weaker) == {ViolationKind.DOUBLED}


def test_losses_of_writes_after_the_power_loss_are_found(history: History) -> None:
    history.crashed(power_loss=True)
    write(history, "x", 4)
    assert kinds(history, log("abcd"), WEAK) == {ViolationKind.LOST}


def test_every_kind_of_violation_has_a_description() -> None:
    shown = {str(Violation(kind, PARTITION, "offset 3")) for kind in ViolationKind}
    assert len(shown) == len(ViolationKind)
    assert all("orders-0" in text and "offset 3" in text for text in shown)


def test_this_module_tests_every_kind_of_violation() -> None:
    with open(__file__, encoding="utf-8") as source:
        text = source.read()
    assert [kind.name for kind in ViolationKind if f"Kind.{kind.name}" not in text] == []
