"""Tests the wire client against misbehaving brokers, in simulated time."""

import asyncio

import pytest

from builders.loops import for_each
from builders.sdk.scripted_broker import NAMES, Cut, Fault, Late, Refuse, Say, Scene, Silence, play
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.connection.cluster import NoBrokerError
from millstream.sdk.connection.connection import ConnectionLostError
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.requests import BEGINNING, LATEST


async def failure_of(operation: object) -> MillstreamError:
    with pytest.raises(MillstreamError) as caught:
        await operation  # type: ignore[misc]  # any awaitable will do
    return caught.value


def test_put_messages_can_be_fetched() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        places = await client.put("t", [b"a", None, b"c"], keys=[b"k", b"k", None], headers=[[("h", b"1")], None, None])
        assert [place.offset for place in places] == [0, 1, 2]
        fetched = await client.fetch("t", 0, 1)
        assert [(record.offset, record.key, record.value) for record in fetched.records] == [
            (1, b"k", None),
            (2, None, b"c"),
        ]
        assert (fetched.next_offset, fetched.high_watermark) == (3, 3)
        first = (await client.fetch("t", 0, 0)).records[0]
        assert first.headers == (("h", b"1"),)

    play(body)


@pytest.mark.parametrize("api", sorted(set(NAMES) - {"ApiVersions"}))
def test_the_client_works_with_its_oldest_version_of_each_api(api: str) -> None:
    oldest = {"Produce": 3, "Fetch": 4, "ListOffsets": 1, "Metadata": 4, "CreateTopics": 4, "DeleteTopics": 1}

    async def body(scene: Scene) -> None:
        scene.cluster.version_max[NAMES[api]] = oldest.get(api, 0)
        client = scene.client()
        await client.create_topic("t", partitions=2)
        await client.put("t", [b"a"], partition=1)
        assert [record.value for record in (await client.fetch("t", 1, 0)).records] == [b"a"]
        latest = await client.list_offset("t", 1, LATEST)
        assert latest is not None
        assert latest.offset == 1
        await client.delete_topic("t")
        assert scene.cluster.topics == {}

    play(body)


@for_each("version", range(4))
def test_api_versions_is_negotiated_with_older_brokers(version: int) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.version_max[NAMES["ApiVersions"]] = version
        assert (await scene.client().metadata()).cluster_id == "scripted"

    play(body)


# Finding brokers.


def test_an_unreachable_seed_is_skipped() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client("nobody:1,broker1:9092")
        assert await client.list_topics() == []

    play(body)


def test_if_no_seed_is_reachable_the_error_lists_each_reason() -> None:
    async def body(scene: Scene) -> None:
        scene.network.refuse("broker1")
        client = scene.client("broker1:9092,other:1")
        error = await failure_of(client.metadata(timeout_s=3))
        assert isinstance(error, NoBrokerError)
        assert "broker1:9092 cannot be reached: connection refused" in error.detail
        assert "other:1" in error.detail

    play(body)


def test_a_silent_address_is_given_up_after_the_connect_timeout() -> None:
    async def body(scene: Scene) -> None:
        scene.network.block("broker1")
        begun_s = scene.loop.time()
        error = await failure_of(scene.client(connect_timeout_s=2.0).metadata(timeout_s=5))
        assert "did not answer in" in error.detail
        assert scene.loop.time() - begun_s < 8

    play(body)


@pytest.mark.parametrize("seeds", ["broker1:9092", "broker1:9092,broker2:9092"])
@pytest.mark.parametrize("timeout_s", [1.0, 7.0])
def test_connecting_ends_at_its_timeout_despite_a_longer_connect_timeout(seeds: str, timeout_s: float) -> None:
    async def body(scene: Scene) -> None:
        scene.network.block("broker1")
        scene.network.block("broker2")
        begun_s = scene.loop.time()
        error = await failure_of(scene.client(seeds, connect_timeout_s=5.0).reach(timeout_s))
        assert "broker1:9092 did not answer" in error.detail
        assert scene.loop.time() - begun_s < timeout_s + 0.1

    play(body, nodes=2)


def test_a_silent_seed_leaves_the_others_time_to_answer() -> None:
    async def body(scene: Scene) -> None:
        scene.network.block("broker1")
        client = scene.client("broker1:9092,broker2:9092", connect_timeout_s=5.0)
        await client.reach(1.0)
        assert not (await client._cluster.anyone(Deadline(0))).closed

    play(body, nodes=2)


def test_another_broker_is_used_when_the_first_is_gone() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client("broker1:9092,broker2:9092")
        scene.cluster.topic("t")[0].leader = 2
        await client.metadata()
        scene.network.refuse("broker1")
        scene.network.cut("broker1")
        places = await client.put("t", [b"a"])
        assert places[0].offset == 0
        assert (await client.list_topics())[0].name == "t"

    play(body, nodes=2)


def test_requests_go_to_the_leader_and_follow_it_when_it_moves() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        log = scene.cluster.topic("t")[0]
        log.leader = 2
        await client.put("t", [b"a"])
        log.leader = 3
        await client.put("t", [b"b"])
        assert scene.cluster.requests("Produce") == [2, 2, 3]
        assert log.values == [b"a", b"b"]
        log.leader = 1
        assert [record.value for record in (await client.fetch("t", 0, 0)).records] == [b"a", b"b"]
        log.leader = 2
        assert await client.list_offset("t", 0, LATEST) is not None

    play(body, nodes=3)


def test_admin_requests_go_to_the_controller() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.controller = 2
        client = scene.client()
        await client.create_topic("t")
        scene.cluster.controller = 1
        await client.create_topic("u")
        assert scene.cluster.requests("CreateTopics") == [2, 1]

    play(body, nodes=2)


def test_a_peer_that_is_not_a_broker_is_not_retried() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.then("ApiVersions", Say(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
        error = await failure_of(scene.client().fetch("t", 0, 0, timeout_s=1000))
        assert "Kafka listener" in error.detail

    play(body)


def test_a_closed_client_fails_pending_and_new_requests() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        await client.metadata()
        waiting = asyncio.ensure_future(client.fetch("missing", 0, 0))
        await asyncio.sleep(0)
        client.close()
        await failure_of(waiting)
        error = await failure_of(client.metadata(timeout_s=0.5))
        assert "the client is closed" in error.detail

    play(body)


# Reading.


def test_a_long_poll_returns_on_a_new_message_and_blocks_no_other_request() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        scene.cluster.topic("t")
        begun_s = scene.loop.time()
        waiting = asyncio.ensure_future(client.fetch("t", 0, 0, max_wait_ms=60_000))
        await asyncio.sleep(3)
        await client.put("t", [b"a"])
        fetched = await waiting
        assert [record.value for record in fetched.records] == [b"a"]
        assert scene.loop.time() - begun_s < 4

    play(body)


@pytest.mark.parametrize("refused", [False, True])
def test_a_fetch_beyond_the_log_end_waits_until_the_offset_exists(refused: bool) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.out_of_range_beyond_end = refused
        client = scene.client()
        await client.put("t", [b"0", b"1"])
        waiting = asyncio.ensure_future(client.fetch("t", 0, 3, max_wait_ms=30_000))
        await asyncio.sleep(2)
        await client.put("t", [b"2"])
        await asyncio.sleep(2)
        assert not waiting.done()
        await client.put("t", [b"3"])
        fetched = await waiting
        assert [(record.offset, record.value) for record in fetched.records] == [(3, b"3")]

    play(body)


@pytest.mark.parametrize("refused", [False, True])
def test_a_fetch_beyond_the_log_end_returns_nothing_after_its_wait(refused: bool) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.out_of_range_beyond_end = refused
        client = scene.client()
        await client.put("t", [b"0"])
        fetched = await client.fetch("t", 0, 100, max_wait_ms=2_000)
        assert fetched.records == []
        assert fetched.next_offset == 100

    play(body)


def test_a_fetch_before_the_log_start_raises_an_error_with_the_log_start() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t")[0].start = 17
        error = await failure_of(scene.client().fetch("t", 0, 5))
        assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert "17" in error.detail

    play(body)


def test_a_negative_offset_is_refused_without_a_request() -> None:
    async def body(scene: Scene) -> None:
        error = await failure_of(scene.client().fetch("t", 0, -1))
        assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert scene.cluster.seen == []

    play(body)


@pytest.mark.parametrize("fault", [Cut(after=False), Cut(after=True), Refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)])
def test_a_failed_fetch_is_retried(fault: Fault) -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        await client.put("t", [b"a"])
        scene.cluster.then("Fetch", fault, fault)
        assert [record.value for record in (await client.fetch("t", 0, 0)).records] == [b"a"]

    play(body)


def test_the_late_response_of_a_cancelled_long_poll_is_discarded() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        scene.cluster.topic("t")
        waiting = asyncio.ensure_future(client.fetch("t", 0, 0, max_wait_ms=60_000))
        await asyncio.sleep(1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await client.put("t", [b"a", b"b"])
        assert [record.value for record in (await client.fetch("t", 0, 1)).records] == [b"b"]

    play(body)


def test_idle_poll_connections_are_reused() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        await client.put("t", [b"a"])
        for _ in range(5):
            await client.fetch("t", 0, 0)
        assert scene.cluster.connections == 2

    play(body)


# Offsets.


def test_offsets_are_listed_by_position_and_by_time() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        scene.cluster.topic("t", 2)[1].leader = 2
        await client.put("t", [b"0", b"1", b"2"], partition=1, timestamps_ms=[100, 200, 300])
        places = {TopicPartition("t", number): when for number, when in ((0, BEGINNING), (1, LATEST))}
        found = await client.list_offsets(places)
        assert [found[where].offset for where in places] == [0, 3]
        later = await client.list_offset("t", 1, 150)
        assert later is not None
        assert (later.offset, later.timestamp_ms) == (1, 200)
        assert await client.list_offset("t", 1, 301) is None

    play(body, nodes=2)


def test_many_partitions_are_listed_in_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.sdk.feed.leader_call.PLACES_AT_ONCE", 2)

    async def body(scene: Scene) -> None:
        client = scene.client()
        scene.cluster.topic("t", 5)
        places = {TopicPartition("t", number): LATEST for number in range(5)}
        assert list(await client.list_offsets(places)) == list(places)
        assert len(scene.cluster.requests("ListOffsets")) == 3

    play(body)


# Topics.


def test_fetching_an_unknown_topic_fails_soon_and_does_not_create_it() -> None:
    async def body(scene: Scene) -> None:
        begun_s = scene.loop.time()
        error = await failure_of(scene.client().fetch("missing", 0, 0, timeout_s=1000))
        assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "'missing'" in error.detail
        assert scene.loop.time() - begun_s < 5
        assert scene.cluster.topics == {}

    play(body)


def test_an_unknown_partition_error_lists_the_existing_partitions() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", 3)
        error = await failure_of(scene.client().fetch("t", 3, 0))
        assert "has no partition 3; it has 0 to 2" in error.detail

    play(body)


def test_a_put_waits_for_a_topic_without_a_leader() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        log = scene.cluster.topic("t")[0]
        log.leader = -1
        waiting = asyncio.ensure_future(client.put("t", [b"a"]))
        await asyncio.sleep(3)
        log.leader = 1
        assert (await waiting)[0].offset == 0

    play(body)


def test_creating_an_existing_topic_is_refused() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t")
        error = await failure_of(scene.client().create_topic("t"))
        assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS
        assert len(scene.cluster.requests("CreateTopics")) == 1

    play(body)


def test_a_creation_whose_answer_was_lost_counts_as_done() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.then("CreateTopics", Cut(after=True))
        await scene.client().create_topic("t", partitions=2)
        assert len(scene.cluster.topics["t"]) == 2

    play(body)


def test_a_creation_with_a_lost_answer_does_not_claim_a_different_topic() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", 5)
        scene.cluster.then("CreateTopics", Cut(after=False))
        error = await failure_of(scene.client().create_topic("t", partitions=2))
        assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS

    play(body)


def test_a_deletion_whose_answer_was_lost_counts_as_done() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t")
        scene.cluster.then("DeleteTopics", Cut(after=True))
        await scene.client().delete_topic("t")
        assert scene.cluster.topics == {}

    play(body)


def test_deleting_an_unknown_topic_is_refused_without_retries() -> None:
    async def body(scene: Scene) -> None:
        error = await failure_of(scene.client().delete_topic("t"))
        assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert len(scene.cluster.requests("DeleteTopics")) == 1

    play(body)


def test_info_of_a_broker_without_the_api_is_unsupported_version() -> None:
    async def body(scene: Scene) -> None:
        error = await failure_of(scene.client().info())
        assert error.code is ErrorCode.UNSUPPORTED_VERSION

    play(body)


def test_an_overdue_response_closes_the_connection_and_the_retry_reconnects() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client(request_timeout_s=2.0)
        await client.metadata()
        scene.cluster.then("Metadata", Silence())
        assert (await client.metadata()).cluster_id == "scripted"
        assert scene.cluster.connections == 2

    play(body)


def test_produce_sends_a_batch_without_retries() -> None:
    async def body(scene: Scene) -> None:
        from builders.batches import batch

        client = scene.client()
        scene.cluster.topic("t")
        assert (await client.produce("t", 0, batch(b"a", b"b"))).base_offset == 0
        scene.cluster.then("Produce", Cut(after=True))
        error = await failure_of(client.produce("t", 0, batch(b"c")))
        assert isinstance(error, ConnectionLostError)
        assert scene.cluster.topics["t"][0].values == [b"a", b"b", b"c"]

    play(body)


def test_a_timed_out_request_does_not_close_the_shared_connection() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        scene.cluster.topic("t")
        await client.put("t", [b"a"])
        connections = scene.cluster.connections
        scene.cluster.then("Metadata", Late(2.0))
        error = await failure_of(client.metadata(timeout_s=0.5))
        assert error.code is ErrorCode.REQUEST_TIMED_OUT
        await client.put("t", [b"b"])
        assert scene.cluster.connections == connections

    play(body)


def test_a_broker_that_reads_no_data_is_abandoned_after_a_timeout() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client("broker1:9092,broker2:9092", request_timeout_s=3.0)
        logs = scene.cluster.topic("t", 2)
        await client.put("t", [b"a"], partition=0)
        scene.network.block("broker1")
        stuck = [asyncio.ensure_future(client.put("t", [bytes(400_000)], partition=number)) for number in (0, 1)]
        await asyncio.sleep(1)
        for log in logs:
            log.leader = 2
        await asyncio.gather(*stuck)
        assert [len(log.values) for log in logs] == [2, 1]

    play(body, nodes=2)


def test_damaged_data_is_reported_after_a_few_attempts() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        await client.put("t", [b"a"])
        log = scene.cluster.topics["t"][0]
        log.batches[0] = log.batches[0][:-1] + b"\x55"
        begun_s = scene.loop.time()
        error = await failure_of(client.fetch("t", 0, 0))
        assert error.code is ErrorCode.CORRUPT_MESSAGE
        assert scene.loop.time() - begun_s < 5

    play(body)


def test_a_connection_out_of_step_is_replaced_and_nothing_is_stored_twice() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        await client.put("t", [b"a"])
        scene.cluster.then("Produce", Say(b"\0\0\0\x04\0\0\0\x7f"))
        await client.put("t", [b"b"])
        assert scene.cluster.topics["t"][0].values == [b"a", b"b"]

    play(body)
