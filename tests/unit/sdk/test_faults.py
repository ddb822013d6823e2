"""Tests that bugs in background tasks are logged and raised in the next call, and that the tasks continue."""

import asyncio
from typing import Any

import pytest

from builders.sdk.engines import Put
from builders.sdk.scripted_broker import Scene
from builders.sdk.scripted_broker import play as play_scene
from builders.sdk.simulated_consumers import GROUP, LONG_S, TOPIC, Ground, play, values
from millstream.model.errors import MillstreamError
from millstream.sdk.connection.cluster import Cluster, NoBrokerError
from millstream.sdk.consuming.fetcher import Fetcher
from millstream.sdk.consuming.group.commits import Commits
from millstream.sdk.consuming.group.member_core import MemberCore
from millstream.sdk.consuming.standalone import StandaloneSource
from millstream.sdk.feed.feed_set import FeedSet
from millstream.sdk.iterating.engine import IteratorEngine
from millstream.sdk.subscribing.stream import SubscriptionStream

MEMBER: Any = {"group": GROUP, "start": "beginning", "auto_commit": 1.0}


def fail(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("nobody thought of it")


async def assert_poll_fails(reader: Any) -> None:
    with pytest.raises(MillstreamError, match=r"CLIENT_FAILED.*nobody thought of it"):
        await reader.poll(None)


@pytest.mark.parametrize(
    ("options", "where", "name"),
    [({"start": "beginning"}, FeedSet, "find_leaders"), (MEMBER, Fetcher, "_keep"), (MEMBER, MemberCore, "beat")],
    ids=["who leads", "what came", "heartbeats"],
)
def test_a_consumer_raises_client_failed_after_a_bug_in_a_background_task(
    options: Any, where: Any, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)
        async with ground.client.consumer(TOPIC, **options) as consumer:
            assert len(await consumer.poll(LONG_S)) == 10
            with monkeypatch.context() as patch:
                patch.setattr(where, name, fail)
                ground.network.cut("reader")
                if where is not MemberCore:
                    await ground.write(10)
                for _ in range(2):
                    await assert_poll_fails(consumer)
            if where is not MemberCore:
                assert values(await consumer.poll(LONG_S)) == ground.written[0][10:]

    play(story)
    assert "failed unexpectedly" in caplog.text


@pytest.mark.parametrize(
    ("options", "where", "name"),
    [({"start": "beginning"}, StandaloneSource, "_numbers"), (MEMBER, Commits, "_commit")],
    ids=["new partitions", "commits"],
)
def test_a_consumer_raises_client_failed_after_a_bug_in_work_of_a_poll(
    options: Any, where: Any, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)
        async with ground.client.consumer(TOPIC, **options) as consumer:
            assert len(await consumer.poll(LONG_S)) == 10
            with monkeypatch.context() as patch:
                patch.setattr(where, name, fail)
                await assert_poll_fails(consumer)
            await ground.write(10)
            assert values(await consumer.poll(LONG_S)) == ground.written[0][10:]

    play(story)
    assert "failed unexpectedly" in caplog.text


def test_iterators_raise_client_failed_after_a_bug_in_heartbeats_and_recover(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(ground: Ground) -> None:
        async with ground.client.iterators(TOPIC, group=GROUP) as iterators:
            with monkeypatch.context() as patch:
                patch.setattr(IteratorEngine, "heartbeat", fail)
                for _ in range(2):
                    await assert_poll_fails(iterators)
            await ground.write(10)
            await asyncio.sleep(LONG_S)
            batch = await iterators.poll(LONG_S)
            assert batch is not None
            assert values(batch.messages) == ground.written[0]

    play(story)
    assert "failed unexpectedly" in caplog.text


@pytest.mark.parametrize("finished", [0, 10], ids=["while it looks for its broker", "while it commits"])
def test_a_subscription_raises_client_failed_after_a_bug_in_a_background_task(
    finished: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)
        subscription = ground.client.subscription(TOPIC, start="beginning" if finished else "latest")
        async with subscription:
            if finished:
                assert len(await subscription.poll(LONG_S)) == finished
            monkeypatch.setattr(SubscriptionStream, "commit", fail)
            await assert_poll_fails(subscription)

    play(story)
    assert "failed unexpectedly" in caplog.text


@pytest.mark.parametrize(("fault", "error"), [(True, MillstreamError), (False, NoBrokerError)])
def test_a_failed_metadata_lookup_fails_the_put_and_later_puts_succeed(
    fault: bool, error: type[MillstreamError], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene, timeout_s=3.0)
        with monkeypatch.context() as patch:
            if fault:
                patch.setattr(Cluster, "topic", fail)
            else:
                scene.network.block("broker1")
            with pytest.raises(error, match="CLIENT_FAILED" if fault else "no broker can be reached"):
                await put("t", b"a")
        if not fault:
            scene.network.unblock("broker1")
        await put("t", b"b")
        assert scene.cluster.topics["t"][0].values == [b"b"]
        await put.close(1.0)

    play_scene(body)
