"""The client against brokers that misbehave, in simulated time."""

import asyncio

import pytest

from builders.loops import for_each
from builders.sdk.scripted_broker import NAMES, Cut, Fault, Late, Refuse, Say, Scene, Silence, play
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.connection.cluster import UnreachableError
from millstream.sdk.connection.connection import ConnectionLostError
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.requests import BEGINNING, LATEST


async def failure_of(operation: object) -> MillstreamError:
    with pytest.raises(MillstreamError) as caught:
        await operation  # type: ignore[misc]  # any awaitable will do
    return caught.value


def test_what_is_put_can_be_fetched() -> None:
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
def test_the_oldest_version_the_client_speaks_is_enough(api: str) -> None:
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
def test_an_older_broker_is_greeted_in_its_own_version(version: int) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.version_max[NAMES["ApiVersions"]] = version
        assert (await scene.client().metadata()).cluster_id == "scripted"

    play(body)


# Finding brokers.


def test_a_dead_seed_is_passed_over() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client("nobody:1,broker1:9092")
        assert await client.list_topics() == []

    play(body)


def test_no_broker_at_all_is_an_error_that_names_each_seed_and_why() -> None:
    async def body(scene: Scene) -> None:
        scene.network.refuse("broker1")
        client = scene.client("broker1:9092,other:1")
        error = await failure_of(client.metadata(timeout_s=3))
        assert isinstance(error, UnreachableError)
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
def test_connecting_ends_with_its_time_however_long_one_attempt_might_take(seeds: str, timeout_s: float) -> None:
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


def test_another_broker_is_asked_when_the_first_goes_away() -> None:
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


def test_a_peer_that_speaks_something_else_is_not_asked_again_and_again() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.then("ApiVersions", Say(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
        error = await failure_of(scene.client().fetch("t", 0, 0, timeout_s=1000))
        assert "Kafka listener" in error.detail

    play(body)


def test_a_closed_client_says_so() -> None:
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


def test_a_long_poll_wakes_when_a_message_comes_and_holds_up_nobody() -> None:
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
def test_a_position_beyond_the_end_waits_until_it_is_reached(refused: bool) -> None:
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
def test_a_position_beyond_the_end_brings_nothing_when_the_wait_is_over(refused: bool) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.out_of_range_beyond_end = refused
        client = scene.client()
        await client.put("t", [b"0"])
        fetched = await client.fetch("t", 0, 100, max_wait_ms=2_000)
        assert fetched.records == []
        assert fetched.next_offset == 100

    play(body)


def test_a_position_that_is_gone_is_an_error_that_says_where_the_log_begins() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t")[0].start = 17
        error = await failure_of(scene.client().fetch("t", 0, 5))
        assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert "17" in error.detail

    play(body)


def test_a_negative_position_is_refused_without_asking() -> None:
    async def body(scene: Scene) -> None:
        error = await failure_of(scene.client().fetch("t", 0, -1))
        assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert scene.cluster.seen == []

    play(body)


@pytest.mark.parametrize("fault", [Cut(after=False), Cut(after=True), Refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)])
def test_a_read_is_tried_again(fault: Fault) -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        await client.put("t", [b"a"])
        scene.cluster.then("Fetch", fault, fault)
        assert [record.value for record in (await client.fetch("t", 0, 0)).records] == [b"a"]

    play(body)


def test_a_given_up_long_poll_does_not_leave_its_answer_to_the_next_one() -> None:
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


def test_idle_polling_connections_are_used_again() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        await client.put("t", [b"a"])
        for _ in range(5):
            await client.fetch("t", 0, 0)
        assert scene.cluster.connections == 2

    play(body)


# Offsets.


def test_offsets_are_found_by_place_and_by_time() -> None:
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


def test_many_partitions_are_asked_for_in_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.sdk.connection.retrying_caller.PLACES_AT_ONCE", 2)

    async def body(scene: Scene) -> None:
        client = scene.client()
        scene.cluster.topic("t", 5)
        places = {TopicPartition("t", number): LATEST for number in range(5)}
        assert list(await client.list_offsets(places)) == list(places)
        assert len(scene.cluster.requests("ListOffsets")) == 3

    play(body)


# Topics.


def test_an_unknown_topic_is_an_error_soon_and_is_not_made_by_reading() -> None:
    async def body(scene: Scene) -> None:
        begun_s = scene.loop.time()
        error = await failure_of(scene.client().fetch("missing", 0, 0, timeout_s=1000))
        assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "'missing'" in error.detail
        assert scene.loop.time() - begun_s < 5
        assert scene.cluster.topics == {}

    play(body)


def test_an_unknown_partition_is_an_error_that_says_which_there_are() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", 3)
        error = await failure_of(scene.client().fetch("t", 3, 0))
        assert "has no partition 3; it has 0 to 2" in error.detail

    play(body)


def test_a_topic_without_a_leader_is_waited_for() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        log = scene.cluster.topic("t")[0]
        log.leader = -1
        waiting = asyncio.ensure_future(client.put("t", [b"a"]))
        await asyncio.sleep(3)
        log.leader = 1
        assert (await waiting)[0].offset == 0

    play(body)


def test_an_existing_topic_is_refused() -> None:
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


def test_a_creation_whose_answer_was_lost_does_not_claim_another_ones_topic() -> None:
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


def test_deleting_what_is_not_there_is_refused_at_once() -> None:
    async def body(scene: Scene) -> None:
        error = await failure_of(scene.client().delete_topic("t"))
        assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert len(scene.cluster.requests("DeleteTopics")) == 1

    play(body)


def test_a_broker_that_is_not_ours_has_no_info() -> None:
    async def body(scene: Scene) -> None:
        error = await failure_of(scene.client().info())
        assert error.code is ErrorCode.UNSUPPORTED_VERSION

    play(body)


def test_an_overdue_answer_ends_the_connection_and_the_next_attempt_has_a_new_one() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client(request_timeout_s=2.0)
        await client.metadata()
        scene.cluster.then("Metadata", Silence())
        assert (await client.metadata()).cluster_id == "scripted"
        assert scene.cluster.connections == 2

    play(body)


def test_a_raw_batch_is_sent_in_one_attempt() -> None:
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


def test_an_impatient_caller_does_not_cost_others_their_connection() -> None:
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


def test_a_broker_that_takes_no_more_data_is_left_after_a_while() -> None:
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


def test_a_connection_that_lost_step_is_replaced_and_nothing_is_stored_twice() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        await client.put("t", [b"a"])
        scene.cluster.then("Produce", Say(b"\0\0\0\x04\0\0\0\x7f"))
        await client.put("t", [b"b"])
        assert scene.cluster.topics["t"][0].values == [b"a", b"b"]

    play(body)
