"""Tests how long the pages of the operator port block the event loop of a broker with 10,000 partitions."""

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
    async def story(served: ServedBroker) -> None:
        await served.topic("events", PARTITIONS)
        sources = metric_sources(served.partitions, served.groups, served.listener)
        operator = Operator(sources, served.partitions, served.clock, BrokerHealth())
        operator.is_ready = True
        for stats in served.table.stats.values():
            stats.durations.observe(0.001)  # The page has a histogram of each used API.

        async def load(path: str) -> None:
            made = operator.pages()[path]()
            response = made if isinstance(made, Response) else await made
            assert response.status == 200
            if path == "/metrics":
                assert f"\nmillstream_partitions {PARTITIONS}\n".encode() in response.body

        for path, workload in (
            ("/metrics", table.SCRAPE_WIDE),
            ("/health", table.HEALTH_WIDE),
            ("/ready", table.READY_WIDE),
        ):
            await load(path)
            table.check(workload, {table.CALLS_AT_ONCE: await count_calls_at_once(load(path))})

    serve(tmp_path, story)
