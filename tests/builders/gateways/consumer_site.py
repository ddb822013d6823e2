"""Provides a broker with a topic, and two gateways that share no state, for tests of group consumers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from builders.gateways.web import Ground, with_clusters
from builders.sdk.message_values import values_of
from builders.simulated_node import HOST
from millstream.gateway.operations.clusters import DEFAULT, ClientFactory, ServedCluster, ServedClusters
from millstream.gateway.operations.group_consumers import PollResult, commit, poll
from millstream.gateway.operations.reads import ReadLimits
from millstream.gateway.operations.writes import EventColumns, write
from millstream.model.names import TopicPartition

TOPIC, GROUP = "orders", "billing"
AT_ONCE = ReadLimits(wait_s=0)
SOON = ReadLimits(wait_s=5)


@dataclass
class ConsumerSite:
    """A broker with a topic, and two gateways that share no state."""

    ground: Ground
    gateways: Sequence[ServedCluster]
    written: int = 0

    async def write(self, count: int, partitions: Sequence[int] = (0,)) -> None:
        """Write `count` messages with distinct numbers to each of these partitions."""
        for partition in partitions:
            values: list[bytes | None] = [b"%d" % number for number in range(self.written, self.written + count)]
            await write(self.ground.member, EventColumns(TOPIC, values, partitions=[partition] * count))
            self.written += count

    async def poll(
        self,
        name: str = "a",
        limits: ReadLimits = SOON,
        *,
        at: int = 0,
        auto_commit: bool = False,
        start: str = "beginning",
    ) -> PollResult:
        return await poll(self.gateways[at], [TOPIC], GROUP, name, limits, auto_commit=auto_commit, start=start)

    async def commit(self, name: str = "a", *, at: int = 0) -> dict[int, int]:
        return by_number(await commit(self.gateways[at], GROUP, name))

    async def restart(self) -> None:
        await self.ground.restart(lambda: asyncio.sleep(1))

    async def committed(self) -> dict[int, int]:
        found = await self.ground.member.client.groups.offsets(GROUP)
        return {where.partition: row.offset for where, row in found.items()}


def by_number(positions: dict[TopicPartition, int]) -> dict[int, int]:
    """The positions by partition number."""
    return {where.partition: offset for where, offset in sorted(positions.items())}


def numbers(polled: PollResult) -> list[int]:
    """The numbers in the values of the delivered messages."""
    return [int(value) for value in values_of(polled.messages)]


def is_empty(polled: PollResult) -> bool:
    """True if the poll delivered nothing."""
    return (polled.messages, polled.positions) == ([], {})


def lags(polled: PollResult) -> dict[int, int | None] | None:
    """The lag of each assigned partition."""
    return None if polled.assigned is None else {row.where.partition: row.lag for row in polled.assigned}


def play(story: Callable[[ConsumerSite], Awaitable[None]], partitions: int = 1) -> None:
    """Run a story with a topic of this many partitions."""

    async def whole(ground: Ground) -> None:
        machine = ground.machine
        connecting = ClientFactory(network=machine.network.host("other"), clock=machine.clock, entropy=machine.entropy)
        other = ServedClusters({DEFAULT: [f"{HOST}:9092"]}, connecting)
        try:
            await ground.member.client.create_topic(TOPIC, partitions=partitions)
            await story(ConsumerSite(ground, (ground.cluster, other.get())))
        finally:
            await other.close()

    with_clusters(whole)
