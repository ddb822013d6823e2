"""All subscriptions of a broker: how many there may be, and whose turn it is."""

from millstream.broker.net.memory_limits import MemoryLimits
from millstream.broker.net.push_channel import PushChannel
from millstream.broker.push.flow_control import FlowWindow
from millstream.broker.push.round_robin import RoundRobin
from millstream.broker.push.subscription import PushSubscription
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.wire.subscribe import END, NOWHERE

PER_CONNECTION_MAX = 20_000
"""Gateways watch many partitions, each with a subscription, over one connection."""

PARTITIONS_MAX = 1_000
"""Partitions that one subscription may have; who wants more subscribes more than once."""

ALL_PARTITIONS_MAX = 200_000
"""Partitions that all subscriptions together may have."""

MESSAGES_MAX = 10_000_000
BYTES_MIN, BYTES_MAX = 4 * 1024, 256 * 1024 * 1024


class Subscriptions:
    def __init__(self, memory: MemoryLimits, *, all_partitions_max: int = ALL_PARTITIONS_MAX) -> None:
        self._memory = memory
        self._all_partitions_max = all_partitions_max
        self._turns = RoundRobin()
        self._open: dict[PushSubscription, int] = {}
        self.partitions = 0
        """Those that are subscribed to, each as often as it is."""

    def __len__(self) -> int:
        return len(self._open)

    def open(
        self,
        push_channel: PushChannel,
        correlation_id: int,
        partitions: int,
        window: FlowWindow,
        *,
        group_id: str | None,
        otherwise: int,
    ) -> PushSubscription:
        """A subscription that holds its place on the line and has nothing to send yet.

        INVALID_REQUEST names what is wrong with the request; POLICY_VIOLATION says which bound it would break.
        """
        _check(window, otherwise)
        if correlation_id in push_channel.open_requests:
            raise MillstreamError(
                ErrorCode.INVALID_REQUEST, f"correlation id {correlation_id} is that of another subscription here"
            )
        if not 0 < partitions <= PARTITIONS_MAX:
            raise MillstreamError(
                ErrorCode.INVALID_REQUEST, f"{partitions} partitions; a subscription has 1 to {PARTITIONS_MAX}"
            )
        if len(push_channel.open_requests) >= PER_CONNECTION_MAX:
            raise MillstreamError(
                ErrorCode.POLICY_VIOLATION, f"a connection has no more than {PER_CONNECTION_MAX} subscriptions"
            )
        if self.partitions + partitions > self._all_partitions_max:
            raise MillstreamError(
                ErrorCode.POLICY_VIOLATION,
                f"{self.partitions} partitions are subscribed to; this broker allows {self._all_partitions_max}",
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


def subscription_on(push_channel: PushChannel, correlation_id: int) -> PushSubscription:
    """The subscription that a request names; RESOURCE_NOT_FOUND when its connection has none of that number."""
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
            raise MillstreamError(ErrorCode.INVALID_REQUEST, f"{name} is {value}; it may be {least} to {most}")
