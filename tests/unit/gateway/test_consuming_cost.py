"""Counts the broker requests of polls and commits: few, and no more with more partitions."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

import pytest

from builders.gateways.web import Ground, with_clusters
from builders.simulated_node import HOST
from millstream.gateway.operations.group_consumers import PARTITIONS_MAX, commit, poll
from millstream.gateway.operations.reads import ReadLimits
from millstream.gateway.operations.writes import EventColumns, write
from millstream.sdk.aio.client import AsyncClient
from millstream.sdk.aio.facade import AsyncPortal
from millstream.sdk.client_context import ClientContext
from millstream.sdk.connection.address import parse_bootstrap
from millstream.sdk.connection.cluster import ConnectionSettings

TOPIC, NAMES = "orders", ("billing", "a")
WARM = {"ApiVersions", "Info", "Role", "FindCoordinator", "Metadata"}
"""APIs that are called once per connection, group or topic."""


class Asked:
    """Counts answered requests by API."""

    def __init__(self) -> None:
        self.apis: Counter[str] = Counter()

    def count(self, name: str, amount: int, labels: Mapping[str, str]) -> None:
        pass

    def observe(self, name: str, seconds: float, labels: Mapping[str, str]) -> None:
        if name == "request_seconds":
            self.apis[labels["api"]] += 1

    async def during(self, work: Awaitable[object]) -> dict[str, int]:
        self.apis.clear()
        await work
        return {api: count for api, count in sorted(self.apis.items()) if api not in WARM}


def counted(story: Callable[[Ground, Asked], Awaitable[None]], partitions: int) -> None:
    async def whole(ground: Ground) -> None:
        asked, machine = Asked(), ground.machine
        home = ClientContext(
            parse_bootstrap(f"{HOST}:9092"),
            network=machine.network.host("counted"),
            clock=machine.clock,
            entropy=machine.entropy,
            settings=ConnectionSettings(),
            metrics=asked,
        )
        ground.member.client = AsyncClient(AsyncPortal(), home)
        await ground.member.client.create_topic(TOPIC, partitions=partitions)
        await story(ground, asked)

    with_clusters(whole)


async def fill(ground: Ground, partitions: int) -> None:
    values: list[bytes | None] = [b"value"] * partitions
    await write(ground.member, EventColumns(TOPIC, values, partitions=list(range(partitions))))


@pytest.mark.parametrize("partitions", [1, 8, 200])
def test_a_poll_makes_few_broker_requests_for_any_number_of_partitions(partitions: int) -> None:
    some = min(partitions, PARTITIONS_MAX)

    async def story(ground: Ground, asked: Asked) -> None:
        await poll(ground.cluster, [TOPIC], *NAMES, ReadLimits(wait_s=0))
        await fill(ground, partitions)

        def polled() -> Awaitable[object]:
            return poll(ground.cluster, [TOPIC], *NAMES, ReadLimits(wait_s=0))

        first = {"IteratorJoin": 1, "ListIterators": 1, "OffsetFetch": 1, "ListOffsets": 1, "Fetch": 1}
        # Without a committed offset an iterator has no offset yet; a read resolves it before the delivery.
        within(
            await asked.during(polled()), {**first, "GetIterator": some, "ReadIterator": some, "DeliverIterator": some}
        )
        within(await asked.during(polled()), {"IteratorJoin": 1, "ListIterators": 1, "Fetch": some})
        within(
            await asked.during(commit(ground.cluster, *NAMES)),
            {"IteratorHeartbeat": 1, "ListIterators": 1, "CommitIterator": some},
        )

    counted(story, partitions)


def within(cost: Mapping[str, int], limits: Mapping[str, int]) -> None:
    over = {api: count for api, count in cost.items() if count > limits.get(api, 0)}
    assert not over, f"{cost} exceeds {limits}"
    assert cost["ListIterators"] == 1


def test_a_consumer_without_lag_makes_five_broker_requests_per_poll() -> None:
    async def story(ground: Ground, asked: Asked) -> None:
        async def polled() -> object:
            return await poll(ground.cluster, [TOPIC], *NAMES, ReadLimits(wait_s=5), auto_commit=True)

        await fill(ground, 1)
        await polled()
        for _ in range(3):
            await fill(ground, 1)
            # Join and list run concurrently; then commit, fetch and the record of the delivery.
            limits = {"IteratorJoin": 1, "ListIterators": 1, "CommitIterator": 1, "Fetch": 1, "DeliverIterator": 1}
            within(await asked.during(polled()), limits)

    counted(story, 1)


def test_a_waiting_poll_only_sends_heartbeats() -> None:
    async def story(ground: Ground, asked: Asked) -> None:
        await poll(ground.cluster, [TOPIC], *NAMES, ReadLimits(wait_s=10))
        cost = await asked.during(poll(ground.cluster, [TOPIC], *NAMES, ReadLimits(wait_s=20)))
        within(cost, {"ListIterators": 1, "IteratorJoin": 6, "OffsetFetch": 5, "ListOffsets": 5, "Fetch": 1})

    counted(story, 50)
