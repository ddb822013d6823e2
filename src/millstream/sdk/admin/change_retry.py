"""Asking for changes, where a lost answer leaves open whether the change was made."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.connection.connection import BrokerConnection, ConnectionLostError
from millstream.sdk.connection.retry_policy import Attempts, Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.wire.client_connection import ApiRequest

T = TypeVar("T")


class AlreadyAppliedError(Exception):
    """A retry found done what the attempt before it, whose answer was lost, must have done."""


async def administer(
    asking: RetryingCaller,
    find: Callable[[Deadline], Awaitable[BrokerConnection]],
    request: ApiRequest[T],
    deadline: Deadline,
    done: ErrorCode,
) -> T:
    """The answer of the broker that `find` gives, the controller or a coordinator.

    `done` is the refusal that says it is done: final, but fine after a lost answer. That case is raised as
    AlreadyAppliedError, since only the caller can tell whether what is there is what was asked for.
    """
    attempts = Attempts(asking.entropy, deadline)
    in_doubt = False
    while True:
        try:
            connection = await find(deadline)
            return await connection.request(request, asking.cluster.timeout_s(deadline))
        except MillstreamError as error:
            if error.code is done:
                if in_doubt:
                    raise AlreadyAppliedError from error
                raise
            lost = isinstance(error, ConnectionLostError) or error.code is ErrorCode.REQUEST_TIMED_OUT
            in_doubt = in_doubt or lost
            if not await attempts.again(error):
                account = _account(attempts, error)
                if account is not error:
                    raise account from error
                raise


def _account(attempts: Attempts, last: MillstreamError) -> MillstreamError:
    """Why it failed; where the last attempt was sent and not answered, that is said too: it may yet be done."""
    account = attempts.account(last)
    if account is last or not isinstance(last, ConnectionLostError):
        return account
    return MillstreamError(account.code, f"{account.detail}; the last attempt was not answered, its outcome is unknown")
