"""Tests the state machine of a group member, without a network."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import TopicId
from millstream.sdk.admin.group_results import HeartbeatResponse
from millstream.sdk.consuming.group.member_core import (
    LEAVES,
    LEAVES_FOR_A_WHILE,
    NOTHING,
    Consequence,
    MemberCore,
    Share,
)

TOPIC = TopicId(UUID(int=7))


def share(*partitions: int) -> Share:
    return frozenset((TOPIC, number) for number in partitions)


def member(instance_id: str | None = None) -> MemberCore:
    return MemberCore("g", "m", ("orders",), rebalance_timeout_ms=60_000, instance_id=instance_id)


def answer(epoch: int, *partitions: int) -> HeartbeatResponse:
    return HeartbeatResponse(epoch, 5_000, share(*partitions))


SILENCE = HeartbeatResponse(1, 5_000, None)


def joined(*partitions: int) -> MemberCore:
    core = member()
    core.beat()
    core.answered(answer(1, *partitions))
    core.own(core.target)
    core.beat()
    core.answered(SILENCE)
    return core


def test_the_first_heartbeat_is_complete_and_owns_nothing() -> None:
    beat = member().beat()
    assert (beat.epoch, beat.topics, beat.rebalance_timeout_ms, beat.owned) == (0, ("orders",), 60_000, ())


def test_later_heartbeats_report_only_changes() -> None:
    beat = joined(0, 1).beat()
    assert (beat.epoch, beat.topics, beat.rebalance_timeout_ms, beat.owned) == (1, None, -1, None)


def test_owned_partitions_are_reported_after_reconciliation() -> None:
    core = joined(0, 1)
    core.answered(answer(1, 1, 2))
    assert core.beat().owned is None
    core.own(share(1, 2))
    assert not core.is_settled
    assert core.beat().owned == ((TOPIC, 1), (TOPIC, 2))
    core.answered(SILENCE)
    assert core.is_settled


def test_a_change_during_a_heartbeat_is_reported_with_the_next() -> None:
    core = joined(0)
    core.answered(answer(1))
    core.beat()
    core.own(NOTHING)
    core.answered(SILENCE)
    assert core.beat().owned == ()


def test_a_complete_heartbeat_follows_one_with_an_unknown_outcome() -> None:
    core = joined(0)
    core.beat()
    assert core.failed(MillstreamError(ErrorCode.NETWORK_EXCEPTION)) is Consequence.TRY_AGAIN
    beat = core.beat()
    assert (beat.epoch, beat.topics, beat.owned) == (1, ("orders",), ((TOPIC, 0),))


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND]
)
def test_a_fenced_member_loses_its_partitions_and_rejoins(code: ErrorCode) -> None:
    core = joined(0, 1)
    assert core.failed(MillstreamError(code)) is Consequence.JOIN_AGAIN
    assert (core.owned, core.target, core.lives) == (NOTHING, NOTHING, 1)
    beat = core.beat()
    assert (beat.member_id, beat.epoch, beat.topics, beat.owned) == ("m", 0, ("orders",), ())


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    ],
)
def test_an_unavailable_coordinator_is_retried_without_loss(code: ErrorCode) -> None:
    core = joined(0)
    assert core.failed(MillstreamError(code)) is Consequence.TRY_AGAIN
    assert core.owned == share(0)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ],
)
def test_permanent_errors_end_the_membership(code: ErrorCode) -> None:
    assert joined(0).failed(MillstreamError(code)) is Consequence.GIVE_UP


def test_joining_a_missing_group_ends_the_membership() -> None:
    assert member().failed(MillstreamError(ErrorCode.GROUP_ID_NOT_FOUND)) is Consequence.GIVE_UP


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, LEAVES), ("worker-1", LEAVES_FOR_A_WHILE)])
def test_a_static_member_leaves_temporarily(instance_id: str | None, epoch: int) -> None:
    core = member(instance_id)
    core.beat()
    core.answered(answer(3, 0))
    beat = core.leave()
    assert (beat.epoch, beat.instance_id) == (epoch, instance_id)
    assert (core.epoch, core.owned) == (0, NOTHING)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("answer"), st.frozensets(st.integers(0, 4), max_size=5) | st.none()),
        st.tuples(st.just("follow"), st.none()),
        st.sampled_from(
            [
                ("fail", ErrorCode.NETWORK_EXCEPTION),
                ("fail", ErrorCode.FENCED_MEMBER_EPOCH),
                ("fail", ErrorCode.NOT_COORDINATOR),
            ]
        ),
    ),
    max_size=30,
)


@given(STEPS)
def test_the_coordinator_always_knows_the_owned_partitions(
    steps: list[tuple[str, object]],
) -> None:
    core = member()
    reported: Share = NOTHING
    epoch = 0
    for step, what in steps:
        beat = core.beat()
        if step == "answer":
            if beat.epoch == 0:
                assert beat.owned == ()
            if beat.owned is not None:
                reported = frozenset(beat.owned)
            assert reported == core.owned
            epoch += 1
            assigned = None if what is None else share(*what)  # type: ignore[misc]  # partition numbers
            core.answered(HeartbeatResponse(epoch, 1_000, assigned))
        elif step == "fail":
            core.failed(MillstreamError(what))  # type: ignore[arg-type]  # an ErrorCode
        elif core.epoch > 0:
            core.own(core.target)
        assert core.epoch > 0 or core.owned == NOTHING
