"""Tests the progress of groups and the effect of offset resets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cli.positions import Beginning, Latest, Offset, Time
from millstream.cli.views.group_progress import OffsetBounds, OffsetMove, clamped, total_lag, with_members
from millstream.cli.views.offset_resets import OffsetShift, parse_target
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.admin.group_results import CommittedOffset, GroupLag, GroupMember

WHERE = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
NOW_MS = 1_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", Beginning()),
        ("latest", Latest()),
        ("17", Offset(17)),
        ("-17", OffsetShift(-17)),
        ("+17", OffsetShift(17)),
        (" -0 ", OffsetShift(0)),
        ("@5", Time(5)),
        ("10s", Time(NOW_MS - 10_000)),
    ],
)
def test_a_target_is_a_position_or_a_shift_with_a_sign(text: str, expected: object) -> None:
    assert parse_target(text, NOW_MS) == expected


@pytest.mark.parametrize("text", ["", "-", "+", "--5", "-5m", "+x", "1e3"])
def test_an_invalid_target_is_refused_with_the_accepted_forms(text: str) -> None:
    with pytest.raises(MillstreamError) as caught:
        parse_target(text, NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_SETTING
    assert "+N or -N" in caught.value.detail


@pytest.mark.parametrize(
    ("before", "after", "again", "skipped", "effect"),
    [
        (50, 50, 0, 0, "stays"),
        (50, 20, 30, 0, "30 again"),
        (50, 90, 0, 40, "40 skipped"),
        (None, 10, 0, 0, "begins there"),
        (5, 10, 0, 0, "stays"),  # Offsets before the log start are gone already, so none is skipped.
        (5, 30, 0, 20, "20 skipped"),
        (120, 60, 40, 0, "40 again"),  # Offsets beyond the end cannot be read again.
        (120, 100, 0, 0, "stays"),
    ],
)
def test_an_offset_reset_counts_the_offsets_read_again_or_skipped(
    before: int | None, after: int, again: int, skipped: int, effect: str
) -> None:
    move = OffsetMove(WHERE, before, after, OffsetBounds(10, 100))
    assert (move.again, move.skipped, move.effect) == (again, skipped, effect)


OFFSETS = st.integers(0, 50)


@given(OFFSETS, OFFSETS, OFFSETS, OFFSETS)
def test_offsets_again_and_skipped_are_the_difference_of_the_unread_offsets(
    a: int, b: int, before: int, wanted: int
) -> None:
    bounds = OffsetBounds(min(a, b), max(a, b))
    move = OffsetMove(WHERE, before, clamped(wanted, bounds), bounds)

    def left(offset: int) -> set[int]:
        return set(range(max(offset, bounds.beginning), bounds.end))

    assert bounds.beginning <= move.after <= bounds.end
    assert move.again == len(left(move.after) - left(before))
    assert move.skipped == len(left(before) - left(move.after))


def member(*places: TopicPartition) -> GroupMember:
    return GroupMember("m", None, "c", "/h", 1, ("orders",), places)


def test_each_partition_shows_its_lag_and_its_member() -> None:
    known, gone = GroupLag(CommittedOffset(3), 0, 10, 7), GroupLag(CommittedOffset(3), None, None, None)
    rows = with_members({WHERE: known, OTHER: gone}, [member(OTHER)])
    assert [(row.where, row.progress, row.member is None) for row in rows] == [
        (WHERE, known, True),
        (OTHER, gone, False),
    ]
    assert total_lag(rows) == 7
