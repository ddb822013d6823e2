"""An operation is tried again at once only at a newer leader that is known, and otherwise after a backoff."""

import pytest

from builders.sdk.feeds import EvenEntropy
from builders.sdk.scripted_broker import Scene, play
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.connection.retry_policy import ATTEMPT_MIN_S, Attempts, Deadline
from millstream.sdk.responses import NotLeaderError

REFUSED = MillstreamError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "refused")


def naming(epoch: int) -> NotLeaderError:
    return NotLeaderError(REFUSED, leader_id=2, leader_epoch=epoch)


def attempts(timeout_s: float = 10.0) -> Attempts:
    return Attempts(EvenEntropy(), Deadline(timeout_s))


def test_a_named_leader_is_followed_once_for_each_newer_epoch() -> None:
    async def body(scene: Scene) -> None:
        trying = attempts()
        followed = [trying.follows(naming(epoch), 9) for epoch in (4, 4, 3, 5, 5, 9)]
        assert followed == [True, False, False, True, False, True]

    play(body)


@pytest.mark.parametrize(
    ("error", "known_epoch", "timeout_s"),
    [(REFUSED, 9, 10.0), (naming(4), 3, 10.0), (naming(4), -1, 10.0), (naming(4), 4, ATTEMPT_MIN_S / 2)],
    ids=["no leader named", "older leader known", "no leader known", "no time left"],
)
def test_a_leader_is_not_followed_without_a_newer_one_and_time(
    error: MillstreamError, known_epoch: int, timeout_s: float
) -> None:
    async def body(scene: Scene) -> None:
        assert not attempts(timeout_s).follows(error, known_epoch)

    play(body)


def test_a_refusal_that_was_followed_is_reported_when_the_next_attempt_times_out() -> None:
    async def body(scene: Scene) -> None:
        trying, named = attempts(ATTEMPT_MIN_S * 0.99), naming(4)
        late = MillstreamError(ErrorCode.REQUEST_TIMED_OUT, "no answer")
        assert trying.root_cause(late) is late
        trying = attempts(ATTEMPT_MIN_S)
        assert trying.follows(named, 4)
        trying._deadline = Deadline(0.0)
        assert trying.root_cause(late) is named

    play(body)
