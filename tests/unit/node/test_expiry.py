"""Tests that messages expire according to the settings of the broker or the topic, and that offsets continue."""

import asyncio

import msgspec
import pytest

from builders.simulated_node import HOST, SimulatedMachine, simulate
from millstream.model.names import TopicPartition
from millstream.node.settings import BrokerSettings
from millstream.sdk.requests import BEGINNING, LATEST
from millstream.sdk.wire_client import WireClient

HOUR_S = 3600
ROUND_S = 60
"""Longer than one round of the cleaner."""


SETTINGS = BrokerSettings(data=("/data",), host=HOST, operator_port=-1, retention_ms=HOUR_S * 1000)


async def ends(client: WireClient, topic: str) -> tuple[int, int]:
    """Returns the log start offset and the log end offset."""
    where = TopicPartition(topic, 0)
    first = await client.list_offsets({where: BEGINNING})
    last = await client.list_offsets({where: LATEST})
    return first[where].offset, last[where].offset


def test_messages_expire_after_the_retention_time_and_offsets_continue() -> None:
    async def story(machine: SimulatedMachine) -> None:
        node = await machine.start()
        client = await machine.client()
        await client.create_topic("kept", settings={"retention.ms": "-1"})
        for topic in ("default", "kept"):
            await client.put(topic, [b"1", b"2", b"3"])
        await asyncio.sleep(HOUR_S - ROUND_S)
        assert await ends(client, "default") == (0, 3)
        # A segment is closed after the retention time at the latest, and expires with its last message.
        await asyncio.sleep(HOUR_S + 2 * ROUND_S)
        assert await ends(client, "default") == (3, 3)
        assert await ends(client, "kept") == (0, 3)
        (place,) = await client.put("default", [b"4"])
        assert place.offset == 3
        client.close()
        await node.stop()

        node = await machine.start()
        client = await machine.client()
        assert await ends(client, "default") == (3, 4)
        assert [record.value for record in (await client.fetch("default", 0, 3)).records] == [b"4"]
        client.close()
        await node.stop()

    simulate(SETTINGS, story)


@pytest.mark.parametrize("by_topic", [False, True])
def test_a_partition_over_its_maximum_size_loses_its_oldest_messages(by_topic: bool) -> None:
    limit_bytes, segment_bytes = 64 * 1024, 16 * 1024

    async def story(machine: SimulatedMachine) -> None:
        node = await machine.start()
        client = await machine.client()
        wanted = {"retention.bytes": str(limit_bytes), "segment.bytes": str(segment_bytes)} if by_topic else {}
        await client.create_topic("events", settings=wanted)
        for number in range(100):
            await client.put("events", [bytes([number]) * 2000])
        await asyncio.sleep(ROUND_S)
        first, end = await ends(client, "events")
        assert end == 100
        kept_bytes = (end - first) * 2000
        assert limit_bytes - segment_bytes <= kept_bytes <= limit_bytes + 2 * segment_bytes
        assert (await client.fetch("events", 0, first)).records[0].value == bytes([first]) * 2000
        client.close()
        await node.stop()

    small = msgspec.structs.replace(SETTINGS, retention_bytes=limit_bytes, segment_bytes=segment_bytes)
    simulate(SETTINGS if by_topic else small, story)
