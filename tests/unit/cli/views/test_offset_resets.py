"""What a reset of a group does, in numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cli.positions import Beginning, Latest, Offset, Time
from millstream.cli.views.group_progress import GroupProgress, OffsetBounds, OffsetMove, clamped, progress, total_lag
from millstream.cli.views.offset_resets import OffsetShift, parse_target
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.admin.group_results import CommittedOffset, GroupMember

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
def test_a_place_is_read_and_a_sign_makes_it_a_shift(text: str, expected: object) -> None:
    assert parse_target(text, NOW_MS) == expected


@pytest.mark.parametrize("text", ["", "-", "+", "--5", "-5m", "+x", "1e3"])
def test_what_is_no_place_is_told_what_would_be_one(text: str) -> None:
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
        (5, 10, 0, 0, "stays"),  # What lay before the beginning is gone, so nothing is skipped.
        (5, 30, 0, 20, "20 skipped"),
        (120, 60, 40, 0, "40 again"),  # Beyond the end there is nothing to read again.
        (120, 100, 0, 0, "stays"),
    ],
)
def test_what_a_move_reads_again_or_skips(
    before: int | None, after: int, again: int, skipped: int, effect: str
) -> None:
    move = OffsetMove(WHERE, before, after, OffsetBounds(10, 100))
    assert (move.again, move.skipped, move.effect) == (again, skipped, effect)


OFFSETS = st.integers(0, 50)


@given(OFFSETS, OFFSETS, OFFSETS, OFFSETS)
def test_a_move_is_the_difference_of_what_is_left_to_read(a: int, b: int, before: int, wanted: int) -> None:
    bounds = OffsetBounds(min(a, b), max(a, b))
    move = OffsetMove(WHERE, before, clamped(wanted, bounds), bounds)

    def left(offset: int) -> set[int]:
        return set(range(max(offset, bounds.beginning), bounds.end))

    assert bounds.beginning <= move.after <= bounds.end
    assert move.again == len(left(move.after) - left(before))
    assert move.skipped == len(left(before) - left(move.after))


def member(*places: TopicPartition) -> GroupMember:
    return GroupMember("m", None, "c", "/h", 1, ("orders",), places)


def test_progress_has_a_row_for_what_is_committed_and_for_what_is_owned() -> None:
    rows = progress(
        {WHERE: CommittedOffset(3)}, [member(OTHER)], {WHERE: OffsetBounds(0, 10), OTHER: OffsetBounds(0, 5)}
    )
    assert [(row.where, row.lag, row.member is None) for row in rows] == [(WHERE, 7, True), (OTHER, None, False)]
    assert total_lag(rows) == 7


@pytest.mark.parametrize(
    ("committed", "bounds", "lag"),
    [
        (3, OffsetBounds(0, 10), 7),
        (3, OffsetBounds(5, 10), 5),
        (12, OffsetBounds(0, 10), 0),
        (3, None, None),
        (None, OffsetBounds(0, 10), None),
    ],
)
def test_lag_is_what_can_still_be_read(committed: int | None, bounds: OffsetBounds | None, lag: int | None) -> None:
    offset = None if committed is None else CommittedOffset(committed)
    assert GroupProgress(WHERE, offset, bounds, None).lag == lag
