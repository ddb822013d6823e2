"""Tests how long a gateway blocks its event loop for requests about a topic with very many partitions."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from budgets import table
from budgets.counting import count_calls_at_once
from builders.gateways.web import Web
from millstream.gateway.http.web_context import WebContext
from millstream.gateway.operations.clusters import DEFAULT, ServedClusters
from millstream.testing.embedded import EmbeddedBroker

PARTITIONS = 5_000


def with_web(bootstrap: str, story: Callable[[Web], Awaitable[None]]) -> None:
    async def whole() -> None:
        clusters = ServedClusters({DEFAULT: [bootstrap]})
        try:
            await story(Web(WebContext(clusters)))
        finally:
            await clusters.close()

    asyncio.run(whole())


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """The bootstrap address of a broker with such a topic."""

    async def made(web: Web) -> None:
        assert (await web.ask("POST", "/topic", {"name": "wide", "partitions": PARTITIONS})).status == 201

    with EmbeddedBroker(flush="os") as broker:
        with_web(broker.bootstrap, made)
        yield broker.bootstrap


@pytest.mark.parametrize(
    ("workload", "target"),
    [
        (table.ASK_WIDE, "/v1/topics/wide"),
        (table.ASK_WIDE, "/v1/topics/wide/offsets"),
        (table.ASK_WIDE, "/v1/topics"),
        (table.ASK_WIDE, "/v1/service-map?topics=wide"),
        (table.ASK_WIDE, "/v1/backup-map?topics=wide"),
        (table.READ_WIDE, "/events?topic=wide&wait=0"),
    ],
)
def test_a_request_for_many_partitions_does_not_block_the_event_loop(
    bootstrap: str, workload: str, target: str
) -> None:
    async def story(web: Web) -> None:
        async def ask() -> None:
            assert (await web.ask("GET", target)).status == 200

        await ask()
        table.check(workload, {table.CALLS_AT_ONCE: await count_calls_at_once(ask())})

    with_web(bootstrap, story)
