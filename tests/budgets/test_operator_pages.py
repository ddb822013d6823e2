"""Tests how long the pages of the operator port block the event loop of a broker with 10,000 partitions."""

import asyncio
from pathlib import Path

from budgets import table
from budgets.counting import count_calls_at_once
from builders.served import ServedBroker, serve
from millstream.node.health import BrokerHealth
from millstream.node.metric_sources import metric_sources
from millstream.node.operator_http import Response
from millstream.node.operator_pages import Operator

PARTITIONS = 10_000


def test_the_operator_pages_of_many_partitions_run_in_short_slices(tmp_path: Path) -> None:
    found: list[Operator] = []

    async def story(served: ServedBroker) -> None:
        await served.topic("events", PARTITIONS)
        sources = metric_sources(served.partitions, served.groups, served.listener)
        operator = Operator(sources, served.partitions, served.clock, BrokerHealth())
        operator.is_ready = True
        for stats in served.table.stats.values():
            stats.durations.observe(0.001)  # The page has a histogram of each used API.
        assert f"\nmillstream_partitions {PARTITIONS}\n".encode() in await load(operator, "/metrics")
        found.append(operator)

    serve(tmp_path, story)

    # The broker has stopped, so that the calls of its background tasks do not count.
    async def measure(path: str, workload: str) -> None:
        await load(found[0], path)
        table.check(workload, {table.CALLS_AT_ONCE: await count_calls_at_once(load(found[0], path))})

    for path, workload in (
        ("/metrics", table.SCRAPE_WIDE),
        ("/health", table.HEALTH_WIDE),
        ("/ready", table.READY_WIDE),
    ):
        asyncio.run(measure(path, workload))


async def load(operator: Operator, path: str) -> bytes:
    """Return the body of a page."""
    made = operator.pages()[path]()
    response = made if isinstance(made, Response) else await made
    assert response.status == 200
    return response.body
