"""Kills the broker repeatedly while a consumer's requests alternate between two gateways.

A commit must cover exactly the delivered messages. No message may be lost, and no committed message redelivered.
"""

import asyncio
from pathlib import Path
from random import Random

from faults.load import create_topic
from faults.rounds import SEED
from millstream.gateway.operations.clusters import DEFAULT, ClientFactory, ServedCluster, ServedClusters
from millstream.gateway.operations.group_consumers import commit, poll
from millstream.gateway.operations.reads import ReadLimits
from millstream.gateway.operations.writes import EventColumns, write
from millstream.testing.real_broker import RealBroker

TOPIC, NAMES = "handed-out", ("workers", "one")
PARTITIONS = 2
MESSAGES = 120
KILLS = 4


async def fill(cluster: ServedCluster) -> None:
    values: list[bytes | None] = [b"%d" % number for number in range(MESSAGES)]
    partitions: list[int | None] = [number % PARTITIONS for number in range(MESSAGES)]
    await write(cluster.members[0], EventColumns(TOPIC, values, partitions=partitions))


async def consume(broker: RealBroker, gateways: list[ServedCluster]) -> list[int]:
    random, seen = Random(SEED), list[int]()
    kills = turn = 0
    while len(seen) < MESSAGES:
        turn += 1
        here, there = gateways[turn % 2], gateways[(turn + 1) % 2]
        polled = await poll(here, [TOPIC], *NAMES, ReadLimits(max_messages=random.randint(1, 20)))
        if polled.messages and kills < KILLS:
            kills += 1
            broker.kill()
            broker.start()
            again = await poll(there, [TOPIC], *NAMES, ReadLimits(max_messages=1))
            assert sorted(map(repr, again.messages)) == sorted(map(repr, polled.messages))
        assert await commit(there, *NAMES) == polled.positions
        seen += [int(message.value or b"") for message in polled.messages]
    assert kills == KILLS
    return seen


def test_a_killed_broker_restores_what_was_delivered_to_each_consumer(tmp_path: Path) -> None:
    async def story(broker: RealBroker) -> list[int]:
        gateways = [ServedClusters({DEFAULT: [broker.bootstrap]}, ClientFactory(timeout_s=60)) for _ in range(2)]
        try:
            clusters = [each.get() for each in gateways]
            await fill(clusters[0])
            return await consume(broker, clusters)
        finally:
            await asyncio.gather(*(each.close() for each in gateways))

    with RealBroker(tmp_path / "data") as broker:
        create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        seen = asyncio.run(story(broker))
    assert sorted(seen) == list(range(MESSAGES))
