"""Asking the controller for changes, where a lost answer leaves open whether the change was made."""

from typing import TypeVar

from penstock.model.entropy import Entropy
from penstock.model.errors import ErrorCode, PenstockError
from penstock.sdk.cluster import Cluster
from penstock.sdk.connection import ConnectionLostError
from penstock.sdk.core import Request
from penstock.sdk.retry import Attempts, Deadline

T = TypeVar("T")


class DoneBeforeError(Exception):
    """A retry found done what the attempt before it, whose answer was lost, must have done."""


async def administer(
    cluster: Cluster, entropy: Entropy, request: Request[T], deadline: Deadline, topic: str, done: ErrorCode
) -> T:
    """The controller's answer. `done` is the refusal that says it is done: final, but fine after a lost answer.

    That case is raised as DoneBeforeError, since only the caller can tell whether what is there is what was asked for.
    """
    attempts = Attempts(entropy, deadline)
    in_doubt = False
    while True:
        try:
            connection = await cluster.controller(deadline)
            answer = await connection.request(request, cluster.timeout_s(deadline))
            cluster.forget(topic)
            return answer
        except PenstockError as error:
            if error.code is done:
                if in_doubt:
                    raise DoneBeforeError from error
                raise
            lost = isinstance(error, ConnectionLostError) or error.code is ErrorCode.REQUEST_TIMED_OUT
            in_doubt = in_doubt or lost
            if not await attempts.again(error):
                account = _account(attempts, error)
                if account is not error:
                    raise account from error
                raise


def _account(attempts: Attempts, last: PenstockError) -> PenstockError:
    """Why it failed; where the last attempt was sent and not answered, that is said too: it may yet be done."""
    account = attempts.account(last)
    if account is last or not isinstance(last, ConnectionLostError):
        return account
    return PenstockError(account.code, f"{account.detail}; the last attempt was not answered, its outcome is unknown")
