"""Tests service map and backup map through the public client, against a real broker."""

import asyncio

import pytest

import millstream
from millstream.model.services import NO_PORT


def test_service_map_and_backup_map_describe_the_broker(millstream_bootstrap: str) -> None:
    with millstream.connect(millstream_bootstrap) as client:
        client.create_topic("mapped", partitions=3)
        services = client.service_map(["mapped"])
        (kafka,) = services.of_kind("kafka")
        assert f"{kafka.host}:{kafka.port}" == millstream_bootstrap
        (catalog,) = services.of_kind("catalog")
        assert (catalog.node_id, catalog.port) == (kafka.node_id, NO_PORT)
        assert [(where.partition, at.node_id) for where, at in services.leaders.items()] == [
            (number, kafka.node_id) for number in range(3)
        ]
        assert client.service_map([]).leaders == {}
        assert client.service_map().leaders.items() >= services.leaders.items()
        backups = client.backup_map(["mapped"])
        assert "no partition has a backup" in backups.note
        assert [backup.followers for backup in backups.partitions.values()] == [(), (), ()]
        with pytest.raises(millstream.MillstreamError) as refused:
            client.backup_map(["missing"])
        assert refused.value.code is millstream.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_service_map_and_backup_map_work_with_asyncio(millstream_bootstrap: str) -> None:
    async def run() -> None:
        async with millstream.connect_async(millstream_bootstrap) as client:
            assert (await client.service_map([])).of_kind("kafka")
            assert (await client.backup_map()).note

    asyncio.run(run())
