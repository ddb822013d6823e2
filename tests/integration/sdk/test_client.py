"""Tests the public client, blocking and asyncio, against a real broker."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import millstream
from millstream.sdk.admin.admin_results import ResourceKind

Done = Callable[[Any], Any]
Body = Callable[[Any, Done], object]


def with_blocking(bootstrap: str, body: Body, **settings: Any) -> None:
    with millstream.connect(bootstrap, **settings) as client:
        body(client, lambda result: result)


def with_async(bootstrap: str, body: Body, **settings: Any) -> None:
    with asyncio.Runner() as runner:

        async def connect() -> millstream.AsyncClient:
            return await millstream.connect_async(bootstrap, **settings)

        client = runner.run(connect())

        async def finish(work: Any) -> Any:
            return await work

        body(client, lambda work: runner.run(finish(work)))
        runner.run(client.close())


both = pytest.mark.parametrize("world", [with_blocking, with_async])


@both
def test_topics_are_created_described_and_deleted(world: Any, millstream_bootstrap: str) -> None:
    name = f"made-{world.__name__}"

    def body(client: Any, done: Done) -> None:
        topic_id = done(client.create_topic(name, partitions=3, timeout=timedelta(seconds=30)))
        assert done(client.create_topic(name, exist_ok=True)) == topic_id
        view = done(client.describe_topic(name))
        assert (view.topic_id, len(view.partitions)) == (topic_id, 3)
        assert name in [topic.name for topic in done(client.list_topics())]
        assert name in done(client.metadata([name])).topics
        places = {millstream.TopicPartition(name, 0): "latest", millstream.TopicPartition(name, 1): timedelta(hours=1)}
        found = done(client.offsets(places))
        assert [each.offset for each in found.values()] == [0, -1]
        assert done(client.offsets({(name, 0): "latest", (name, 1): timedelta(hours=1)})) == found
        done(client.delete_topic(name))
        with pytest.raises(millstream.MillstreamError) as refused:
            done(client.describe_topic(name))
        assert refused.value.code is millstream.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    world(millstream_bootstrap, body)


@both
def test_admin_and_groups_work_through_the_public_client(world: Any, millstream_bootstrap: str) -> None:
    name = f"admin-{world.__name__}"

    def body(client: Any, done: Done) -> None:
        done(client.create_topic(name))
        done(client.admin.alter_settings(ResourceKind.TOPIC, name, {"retention.ms": "5000"}))
        for kind in (ResourceKind.TOPIC, "topic"):
            (setting,) = done(client.admin.describe_settings(kind, name, ["retention.ms"]))
            assert setting.value == "5000"
        with pytest.raises(millstream.MillstreamError, match="expected 'topic', 'broker' or 'group'"):
            done(client.admin.describe_settings("user", name))
        assert repr(client.admin).endswith(", open>")
        done(client.admin.create_partitions(name, 2))
        where = millstream.TopicPartition(name, 1)
        assert done(client.admin.delete_records({where: 0})) == {where: 0}
        assert done(client.admin.describe_cluster()).cluster_id == done(client.info()).broker.cluster_id
        assert done(client.admin.query("select count(*) from brokers")).rows == ((1,),)
        assert name in [view.name for view in done(client.admin.list_topics()).topics]
        assert done(client.admin.describe_log_dirs({name: [0]}))
        done(client.groups.commit(name, {where: 0}))
        assert done(client.groups.offsets(name))[where].offset == 0
        assert name in [group.group_id for group in done(client.groups.list())]
        assert done(client.groups.describe(name)).members == ()
        done(client.groups.delete_offsets(name, [where]))
        done(client.groups.delete(name))

    world(millstream_bootstrap, body)


@both
@pytest.mark.parametrize("bootstrap", ["", "host:port", "127.0.0.1:0"])
def test_an_invalid_bootstrap_is_refused_before_connecting(world: Any, bootstrap: str) -> None:
    with pytest.raises(millstream.MillstreamError) as refused:
        world(bootstrap, lambda client, done: None)
    assert refused.value.code is millstream.ErrorCode.INVALID_SETTING


NO_NAMES = pytest.mark.parametrize("name", [5, b"bytes", "x" * 250, "\ud800"], ids=repr)


@both
@NO_NAMES
def test_an_invalid_client_id_is_refused_before_connecting(world: Any, name: Any) -> None:
    with pytest.raises(millstream.MillstreamError, match="INVALID_SETTING: client_id="):
        world("127.0.0.1:9", lambda client, done: None, client_id=name)


@NO_NAMES
def test_an_invalid_producer_group_is_refused_at_once(name: Any, millstream_bootstrap: str) -> None:
    with (
        millstream.connect(millstream_bootstrap) as client,
        pytest.raises(millstream.MillstreamError, match="INVALID_SETTING: group="),
    ):
        client.producer(group=name)


@both
def test_an_unreachable_seed_is_named_with_the_reason(world: Any) -> None:
    with socket.socket() as silent:  # Bound but not listening, so that no other process gets the port.
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(millstream.MillstreamError, match=f"{address} cannot be reached") as refused:
            world(address, lambda client, done: None, timeout=0.5)
    assert refused.value.code is millstream.ErrorCode.NETWORK_EXCEPTION


@both
def test_a_closed_client_refuses_every_call(world: Any, millstream_bootstrap: str) -> None:
    seen = []
    world(millstream_bootstrap, lambda client, done: seen.append(client))
    (client,) = seen
    assert client.closed
    for operation in (client.info, client.admin.describe_cluster, client.groups.list):
        with pytest.raises(millstream.MillstreamError, match="this client is closed") as refused:
            asyncio.run(operation())
        assert refused.value.code is millstream.ErrorCode.CLIENT_CLOSED


def test_an_async_client_belongs_to_its_event_loop(millstream_bootstrap: str) -> None:
    async def connect() -> millstream.AsyncClient:
        return await millstream.connect_async(millstream_bootstrap)

    async def use(client: millstream.AsyncClient) -> None:
        await client.info()

    with asyncio.Runner() as runner:
        client = runner.run(connect())
        with (
            asyncio.Runner() as other,
            pytest.raises(millstream.MillstreamError, match="another event loop") as refused,
        ):
            other.run(use(client))
        assert refused.value.code is millstream.ErrorCode.CLIENT_MISUSED
        runner.run(client.close())


def test_importing_millstream_loads_no_other_modules() -> None:
    program = "import sys; before = set(sys.modules); import millstream; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['millstream']"


def test_every_public_name_can_be_imported() -> None:
    for name in dir(millstream):
        assert getattr(millstream, name) is not None
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = millstream.nothing_like_it
