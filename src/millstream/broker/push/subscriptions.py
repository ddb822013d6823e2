"""Opens the push subscriptions of a broker within limits, and shares one round-robin schedule among them."""

from millstream.broker.net.memory_limits import MemoryLimits
from millstream.broker.net.push_channel import PushChannel
from millstream.broker.push.flow_control import FlowWindow
from millstream.broker.push.round_robin import RoundRobin
from millstream.broker.push.subscription import PushSubscription
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.wire.subscribe import END, NOWHERE

PER_CONNECTION_MAX = 20_000
"""Maximum subscriptions of one connection. A gateway watches many partitions, with one subscription each."""

PARTITIONS_MAX = 1_000
"""Maximum partitions of one subscription. A client that needs more opens several subscriptions."""

ALL_PARTITIONS_MAX = 200_000
"""Maximum partitions of all subscriptions together."""

MESSAGES_MAX = 10_000_000
BYTES_MIN, BYTES_MAX = 4 * 1024, 256 * 1024 * 1024


class Subscriptions:
    def __init__(self, memory: MemoryLimits, *, all_partitions_max: int = ALL_PARTITIONS_MAX) -> None:
        self._memory = memory
        self._all_partitions_max = all_partitions_max
        self._turns = RoundRobin()
        self._open: dict[PushSubscription, int] = {}
        self.partitions = 0
        """Number of subscribed partitions. A partition counts once for each of its subscriptions."""

    def __len__(self) -> int:
        return len(self._open)

    def open(
        self,
        push_channel: PushChannel,
        correlation_id: int,
        *,
        partitions: int,
        window: FlowWindow,
        group_id: str | None,
        otherwise: int,
    ) -> PushSubscription:
        """Register a subscription on a connection. It has no partitions yet.

        Raises INVALID_REQUEST for an invalid request, and POLICY_VIOLATION for one that exceeds a limit.
        """
        _check(window, otherwise)
        check_further_frames(push_channel, correlation_id)
        if not 0 < partitions <= PARTITIONS_MAX:
            raise MillstreamError(
                ErrorCode.INVALID_REQUEST,
                f"{partitions} partitions requested; a subscription has 1 to {PARTITIONS_MAX}",
            )
        if self.partitions + partitions > self._all_partitions_max:
            raise MillstreamError(
                ErrorCode.POLICY_VIOLATION,
                f"cannot subscribe to {partitions} more partitions: {self.partitions} of at most "
                f"{self._all_partitions_max} on this broker are subscribed",
            )
        subscription = PushSubscription(
            push_channel,
            correlation_id,
            window,
            group_id=group_id,
            otherwise=otherwise,
            turns=self._turns,
            memory=self._memory,
            when_over=self._over,
        )
        push_channel.open_requests[correlation_id] = subscription
        self._open[subscription] = partitions
        self.partitions += partitions
        return subscription

    def _over(self, subscription: PushSubscription) -> None:
        self.partitions -= self._open.pop(subscription)


def check_further_frames(push_channel: PushChannel, correlation_id: int) -> None:
    """Check that a request may send further frames on this connection. Raises INVALID_REQUEST if another open request
    has the correlation id, POLICY_VIOLATION if the connection has too many open requests."""
    if correlation_id in push_channel.open_requests:
        raise MillstreamError(
            ErrorCode.INVALID_REQUEST, f"correlation id {correlation_id} belongs to another open request"
        )
    if len(push_channel.open_requests) >= PER_CONNECTION_MAX:
        raise MillstreamError(
            ErrorCode.POLICY_VIOLATION,
            f"this connection already has {PER_CONNECTION_MAX} subscriptions and watches, the maximum",
        )


def subscription_on(push_channel: PushChannel, correlation_id: int) -> PushSubscription:
    """Return the subscription that a request names. Raises RESOURCE_NOT_FOUND if the connection does not have it."""
    found = push_channel.open_requests.get(correlation_id)
    if not isinstance(found, PushSubscription):
        raise MillstreamError(ErrorCode.RESOURCE_NOT_FOUND, f"this connection has no subscription {correlation_id}")
    return found


def _check(window: FlowWindow, otherwise: int) -> None:
    bounds = (
        ("WindowMessages", window.messages, 1, MESSAGES_MAX),
        ("WindowBytes", window.size_bytes, BYTES_MIN, BYTES_MAX),
        ("SharePercent", window.share_percent, 1, 100),
        ("Otherwise", otherwise, NOWHERE, END),
    )
    for name, value, least, most in bounds:
        if not least <= value <= most:
            raise MillstreamError(ErrorCode.INVALID_REQUEST, f"{name} is {value}; it must be {least} to {most}")
