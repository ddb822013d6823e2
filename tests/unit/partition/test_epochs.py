"""Tests the history of leader epochs, with Kafka's results."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.ids import LeaderEpoch, Offset
from millstream.model.limits import NO_LEADER_EPOCH
from millstream.partition.epochs import NO_OFFSET, EpochEnd, Epochs
from millstream.partition.snapshot_encoding import SnapshotError

NOTHING = EpochEnd(NO_LEADER_EPOCH, NO_OFFSET)


def _history(*entries: tuple[int, int]) -> Epochs:
    epochs = Epochs()
    for epoch, start in entries:
        epochs.begin(LeaderEpoch(epoch), start_offset=Offset(start))
    return epochs


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 10)),
        (1, (1, 20)),
        (2, (2, 35)),
        (3, (2, 35)),
        (4, (2, 35)),
        (5, (5, 50)),
        (6, (-1, -1)),
    ],
)
def test_an_epoch_ends_where_the_next_one_began(asked: int, answer: tuple[int, int]) -> None:
    assert _history((1, 10), (2, 20), (5, 35)).end_of(LeaderEpoch(asked), log_end=Offset(50)) == answer


def test_an_empty_history_knows_no_epoch() -> None:
    epochs = Epochs()
    assert epochs.latest == -1
    assert epochs.end_of(LeaderEpoch(0), log_end=Offset(0)) == NOTHING
    assert epochs.end_of(NO_LEADER_EPOCH, log_end=Offset(0)) == NOTHING
    assert epochs.at(Offset(5)) == -1


@pytest.mark.parametrize(("offset", "epoch"), [(9, -1), (10, 1), (19, 1), (20, 2), (34, 2), (35, 5), (1000, 5)])
def test_every_offset_has_the_epoch_that_wrote_it(offset: int, epoch: int) -> None:
    assert _history((1, 10), (2, 20), (5, 35)).at(Offset(offset)) == epoch


@pytest.mark.parametrize(
    ("begun", "expected"),
    [
        ((2, 10), [(1, 0), (2, 10)]),
        ((1, 10), [(1, 0)]),
        ((0, 10), [(1, 0)]),
        ((3, 0), [(3, 0)]),
    ],
    ids=["newer", "again", "older", "the last wrote nothing"],
)
def test_an_epoch_that_began_before_is_ignored(begun: tuple[int, int], expected: list[tuple[int, int]]) -> None:
    epochs = _history((1, 0))
    epoch, start_offset = begun
    epochs.begin(LeaderEpoch(epoch), start_offset=Offset(start_offset))
    assert list(epochs) == expected


@pytest.mark.parametrize(
    ("end", "expected"), [(36, [(1, 10), (2, 20), (5, 35)]), (35, [(1, 10), (2, 20)]), (10, []), (0, [])]
)
def test_a_truncation_removes_later_epochs(end: int, expected: list[tuple[int, int]]) -> None:
    epochs = _history((1, 10), (2, 20), (5, 35))
    epochs.cut(Offset(end))
    assert list(epochs) == expected


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (5, [(1, 10), (2, 20), (5, 35)]),
        (15, [(1, 15), (2, 20), (5, 35)]),
        (20, [(2, 20), (5, 35)]),
        (40, [(5, 40)]),
    ],
)
def test_a_later_log_start_removes_earlier_epochs(start: int, expected: list[tuple[int, int]]) -> None:
    epochs = _history((1, 10), (2, 20), (5, 35))
    epochs.trim(Offset(start))
    assert list(epochs) == expected


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 100)), max_size=20))
def test_a_snapshot_restores_the_same_history(begun: list[tuple[int, int]]) -> None:
    epochs = Epochs()
    for epoch, start in begun:
        epochs.begin(LeaderEpoch(epoch), start_offset=Offset(start))
    restored = Epochs()
    restored.restore(epochs.snapshot())
    assert list(restored) == list(epochs)
    with pytest.raises(SnapshotError):
        restored.restore(epochs.snapshot()[:-1])
    assert list(restored) == list(epochs)
