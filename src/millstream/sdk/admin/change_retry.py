"""Sends requests that change the cluster, and retries them although a lost answer leaves the outcome unknown."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.connection.connection import BrokerConnection, ConnectionLostError
from millstream.sdk.connection.retry_policy import Attempts, Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.wire.client_connection import ApiRequest

T = TypeVar("T")


class AlreadyAppliedError(Exception):
    """A retry found the change already made, presumably by an earlier attempt whose answer was lost."""


async def administer(
    caller: RetryingCaller,
    find: Callable[[Deadline], Awaitable[BrokerConnection]],
    request: ApiRequest[T],
    deadline: Deadline,
    done: ErrorCode,
) -> T:
    """Send a request to the broker that `find` returns (the controller or a coordinator), with retries.

    `done` is the error code of a change that was made before. It is final on the first attempt. After a lost answer it
    is raised as AlreadyAppliedError, because only the caller can check that the state is the requested one.
    """
    attempts = Attempts(caller.entropy, deadline)
    in_doubt = False
    while True:
        try:
            connection = await find(deadline)
            return await connection.request(request, caller.cluster.timeout_s(deadline))
        except MillstreamError as error:
            if error.code is done:
                if in_doubt:
                    raise AlreadyAppliedError from error
                raise
            lost = isinstance(error, ConnectionLostError) or error.code is ErrorCode.REQUEST_TIMED_OUT
            in_doubt = in_doubt or lost
            if not await attempts.again(error):
                cause = _root_cause(attempts, error)
                if cause is not error:
                    raise cause from error
                raise


def _root_cause(attempts: Attempts, last: MillstreamError) -> MillstreamError:
    """Return the error to report. The text mentions a last attempt without a response: it may still take effect."""
    cause = attempts.root_cause(last)
    if cause is last or not isinstance(last, ConnectionLostError):
        return cause
    return MillstreamError(cause.code, f"{cause.detail}; the last attempt was not answered, its outcome is unknown")
