"""Tests the state of idempotent producers, in single cases and against a model with unlimited memory."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import ProducerId
from millstream.model.limits import FIRST_SELF_NAMED_PRODUCER
from millstream.partition.producers import (
    ANNOUNCED_MAX,
    BATCHES_KEPT,
    PER_PARTITION_MIN,
    SEQUENCE_MAX,
    WINDOW_MS,
    ProducerBudget,
    Producers,
    StoredBatch,
)
from millstream.partition.snapshot_encoding import SnapshotError


class Writer:
    """Appends the accepted batches to a fictitious log."""

    def __init__(self, producers: Producers) -> None:
        self.producers = producers
        self.end_offset = 0
        self.now_ms = 0

    def append(self, producer_id: int, epoch: int, base_sequence: int, count: int = 1) -> int:
        """Return the offset of the batch, which may be new or stored before."""
        last_sequence = (base_sequence + count - 1) & SEQUENCE_MAX
        first = self.producers.check(
            ProducerId(producer_id), epoch=epoch, base_sequence=base_sequence, last_sequence=last_sequence
        )
        if first is not None:
            return first.base_offset
        base_offset = self.end_offset
        self.end_offset += count
        batch = StoredBatch(base_sequence, last_sequence, base_offset, self.end_offset - 1, 0)
        self.producers.record(ProducerId(producer_id), batch, epoch=epoch, now_ms=self.now_ms)
        return base_offset

    def refused(self, producer_id: int, epoch: int, base_sequence: int, count: int = 1) -> ErrorCode:
        with pytest.raises(MillstreamError) as error:
            self.append(producer_id, epoch, base_sequence, count)
        return error.value.code


def test_a_repeated_batch_returns_its_first_copy() -> None:
    writer = Writer(Producers())
    places = [writer.append(7, 0, sequence, 2) for sequence in (0, 2, 4)]
    assert [writer.append(7, 0, sequence, 2) for sequence in (0, 2, 4)] == places == [0, 2, 4]
    assert writer.end_offset == 6


@pytest.mark.parametrize(("base_sequence", "count"), [(3, 1), (1, 1), (0, 1), (1, 2), (0, 3), (SEQUENCE_MAX, 1)])
def test_a_batch_that_does_not_follow_directly_is_out_of_order(base_sequence: int, count: int) -> None:
    writer = Writer(Producers())
    writer.append(7, 0, 0, 2)
    assert writer.refused(7, 0, base_sequence, count) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert writer.append(7, 0, 2) == 2


def test_only_the_last_five_batches_are_known_as_duplicates() -> None:
    writer = Writer(Producers())
    for sequence in range(BATCHES_KEPT + 1):
        writer.append(7, 0, sequence)
    assert writer.refused(7, 0, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [writer.append(7, 0, sequence) for sequence in range(1, BATCHES_KEPT + 1)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("base_sequence", [SEQUENCE_MAX, SEQUENCE_MAX - 1])
def test_sequence_numbers_wrap_to_zero_after_the_maximum(base_sequence: int) -> None:
    writer = Writer(Producers())
    writer.append(7, 0, base_sequence, 2)
    follows = (base_sequence + 2) & SEQUENCE_MAX
    assert writer.append(7, 0, follows) == 2
    assert writer.append(7, 0, base_sequence, 2) == 0


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert Writer(Producers()).append(7, 3, 4711) == 0


SELF_NAMED = FIRST_SELF_NAMED_PRODUCER + 7


@pytest.mark.parametrize("epoch", [0, 5, 32767])
def test_a_self_named_writer_begins_at_sequence_zero_in_any_epoch(epoch: int) -> None:
    writer = Writer(Producers())
    assert writer.refused(SELF_NAMED, epoch, 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [writer.append(SELF_NAMED, epoch, 0, 3), writer.append(SELF_NAMED, epoch, 0, 3)] == [0, 0]
    restored = Writer(Producers())
    restored.producers.restore(writer.producers.snapshot(0)(), 0)
    restored.end_offset = writer.end_offset
    assert restored.append(SELF_NAMED, epoch, 0, 3) == 0
    assert restored.append(SELF_NAMED, epoch, 3) == 3
    if epoch:
        assert restored.refused(SELF_NAMED, epoch - 1, 4) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_ordinary_producers_do_not_displace_self_named_writers() -> None:
    budget, own_budget = ProducerBudget(most=20), ProducerBudget(most=20)
    limits = {"window_ms": 100, "self_named_window_ms": 700, "most": 10}
    writer = Writer(Producers(**limits, budget=budget, self_named_budget=own_budget))
    writer.append(SELF_NAMED, 0, 0, 2)
    for producer_id in range(50):
        writer.append(producer_id, 0, 0)
    assert (budget.known, own_budget.known) == (10, 1)
    assert writer.append(SELF_NAMED, 0, 0, 2) == 0
    assert writer.producers.expire(699) == 10
    assert writer.append(SELF_NAMED, 0, 0, 2) == 0
    assert writer.producers.expire(700) == 1
    assert writer.refused(SELF_NAMED, 0, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_retries_of_stored_batches_are_fenced_by_a_newer_epoch() -> None:
    writer = Writer(Producers())
    writer.append(7, 1, 0)
    writer.append(7, 2, 0)
    assert writer.refused(7, 1, 0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert writer.refused(7, 1, 1) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_newer_epoch_begins_at_sequence_zero() -> None:
    writer = Writer(Producers())
    writer.append(7, 1, 0)
    assert writer.refused(7, 2, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert writer.append(7, 2, 0) == 1
    assert writer.append(7, 2, 0) == 1


def test_checking_a_batch_does_not_change_the_producer_state() -> None:
    producers = Producers()
    assert producers.check(ProducerId(7), epoch=0, base_sequence=0, last_sequence=0) is None
    assert producers.check(ProducerId(7), epoch=0, base_sequence=5, last_sequence=5) is None
    assert len(producers) == 0


def test_a_silent_producer_is_forgotten_after_the_window() -> None:
    writer = Writer(Producers(window_ms=100))
    writer.append(1, 0, 0)
    writer.now_ms = 60
    writer.append(2, 0, 0)
    assert writer.producers.expire(99) == 0
    assert writer.producers.expire(100) == 1
    assert writer.append(1, 0, 0) == 2, "forgotten, so the retry is stored again"
    assert writer.append(2, 0, 0) == 1


def test_the_longest_silent_producer_is_forgotten_first() -> None:
    budget = ProducerBudget()
    writer = Writer(Producers(most=2, budget=budget))
    for producer_id in (1, 2):
        writer.append(producer_id, 0, 0)
    writer.append(1, 0, 1)
    writer.append(3, 0, 0)
    assert len(writer.producers) == budget.known == 2
    assert writer.append(1, 0, 1) == 2, "1 was heard of after 2, so 2 went"
    assert writer.append(2, 0, 0) == 4


def test_partitions_share_a_budget_but_each_keeps_a_few_producers() -> None:
    budget = ProducerBudget(most=20)
    noisy, quiet = Writer(Producers(budget=budget)), Writer(Producers(budget=budget))
    for producer_id in range(3):
        quiet.append(producer_id, 0, 0)
    for producer_id in range(100):
        noisy.append(producer_id, 0, 0)
    assert (len(noisy.producers), len(quiet.producers)) == (17, 3)
    for producer_id in range(100):
        quiet.append(producer_id, 0, 1 if producer_id < 3 else 0)
    assert len(quiet.producers) == PER_PARTITION_MIN
    noisy.producers.clear()
    quiet.producers.clear()
    assert budget.known == 0


def test_a_connection_beyond_its_share_displaces_only_its_own_producers() -> None:
    budget = ProducerBudget(most=1_000)
    writer = Writer(Producers(most=100, budget=budget))
    for producer_id in range(5):
        writer.producers.sent_by(ProducerId(producer_id), sender=1)
        writer.append(producer_id, 0, 0)
    for producer_id in range(1_000, 2_000):
        writer.producers.sent_by(ProducerId(producer_id), sender=2)
        writer.append(producer_id, 0, 0)
    assert len(writer.producers) == budget.known == 5 + 10
    assert [writer.append(producer_id, 0, 0) for producer_id in range(5)] == list(range(5)), "these are still known"
    assert [each.producer_id for each in writer.producers.active(0)][5:] == list(range(1_990, 2_000))
    assert writer.producers.expire(WINDOW_MS) == 15
    for producer_id in range(20):
        writer.producers.sent_by(ProducerId(producer_id), sender=2)
        writer.append(producer_id, 0, 0)
    assert len(writer.producers) == 10, "a connection gets its share back when its producers are forgotten"
    writer.producers.clear()
    assert budget.known == 0
    assert not budget.is_share_used(2)


def test_a_connection_has_a_share_of_the_whole_broker_over_all_partitions() -> None:
    budget = ProducerBudget(most=200)
    writers = [Writer(Producers(budget=budget)) for _ in range(4)]
    for number, writer in enumerate(writers):
        for producer_id in range(100):
            writer.producers.sent_by(ProducerId(1_000 * number + producer_id), sender=1)
            writer.append(1_000 * number + producer_id, 0, 0)
    assert [len(writer.producers) for writer in writers] == [20, *[PER_PARTITION_MIN] * 3]


def test_announced_producers_that_are_never_stored_take_no_memory() -> None:
    writer = Writer(Producers())
    for producer_id in range(3 * ANNOUNCED_MAX):
        writer.producers.sent_by(ProducerId(producer_id), sender=1)
    assert len(writer.producers._ordinary.shares._announced) <= ANNOUNCED_MAX
    assert len(writer.producers) == 0


def test_silence_before_a_restart_counts_but_downtime_does_not() -> None:
    writer = Writer(Producers(window_ms=100))
    writer.append(1, 0, 0)
    packed = writer.producers.snapshot(now_ms=60)()
    restored = Producers(window_ms=100)
    restored.restore(packed, now_ms=1_000_000)
    assert restored.expire(1_000_039) == 0
    assert restored.expire(1_000_040) == 1


def test_a_snapshot_does_not_change_after_it_was_taken() -> None:
    writer = Writer(Producers())
    writer.append(1, 0, 0)
    pack = writer.producers.snapshot(0)
    writer.append(1, 0, 1)
    writer.append(2, 0, 0)
    restored = Writer(Producers())
    restored.producers.restore(pack(), 0)
    assert len(restored.producers) == 1
    assert restored.append(1, 0, 0) == 0
    assert restored.refused(1, 0, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_damaged_snapshot_is_refused_and_changes_nothing(data: st.DataObject) -> None:
    writer = Writer(Producers())
    writer.append(1, 0, 0)
    packed = bytearray(writer.producers.snapshot(0)())
    if data.draw(st.booleans()):
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    else:
        del packed[data.draw(st.integers(0, len(packed) - 1)) :]
    with pytest.raises(SnapshotError):
        writer.producers.restore(bytes(packed), 0)
    assert writer.append(1, 0, 0) == 0


class _Model:
    """A model that keeps every stored batch and applies Kafka's rules literally."""

    def __init__(self) -> None:
        self.stored: dict[int, list[tuple[int, int, int, int]]] = {}

    def expect(self, producer_id: int, epoch: int, base: int, count: int, end_offset: int) -> int | ErrorCode:
        mine = self.stored.setdefault(producer_id, [])
        last = (base + count - 1) % 2**31
        if mine:
            newest_epoch = mine[-1][0]
            if epoch < newest_epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH
            if epoch > newest_epoch:
                if base != 0:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            else:
                recent = [row for row in mine if row[0] == epoch][-5:]
                for row in recent:
                    if row[1:3] == (base, last):
                        return row[3]
                if base != (recent[-1][2] + 1) % 2**31:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        mine.append((epoch, base, last, end_offset))
        return end_offset


_CALLS = st.lists(
    st.tuples(
        st.integers(0, 2),  # producer id
        st.integers(0, 2),  # epoch
        st.one_of(
            st.none(), st.integers(0, 8), st.sampled_from([SEQUENCE_MAX, SEQUENCE_MAX - 2])
        ),  # None: what follows
        st.integers(1, 3),
        st.booleans(),  # restart before it
    ),
    max_size=60,
)


@given(_CALLS)
@settings(max_examples=300, deadline=None)
def test_random_sequences_of_batches_are_judged_as_by_the_model(
    calls: list[tuple[int, int, int | None, int, bool]],
) -> None:
    writer, model = Writer(Producers()), _Model()
    for producer_id, epoch, base, count, restart in calls:
        if restart:
            packed = writer.producers.snapshot(writer.now_ms)()
            writer.producers = Producers()
            writer.producers.restore(packed, writer.now_ms)
        if base is None:
            mine = [row for row in model.stored.get(producer_id, []) if row[0] == epoch]
            base = (mine[-1][2] + 1) % 2**31 if mine else 0
        expected = model.expect(producer_id, epoch, base, count, writer.end_offset)
        if isinstance(expected, ErrorCode):
            assert writer.refused(producer_id, epoch, base, count) is expected
        else:
            assert writer.append(producer_id, epoch, base, count) == expected
