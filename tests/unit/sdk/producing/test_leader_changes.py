"""A leader that changes while a batch is in flight leaves it in doubt, and the retry settles it."""

import asyncio
from uuid import UUID

import pytest

from builders.partitions import ELSEWHERE, move_leader
from builders.sdk.engines import Put
from builders.sdk.scripted_broker import Cut, Depose, Fault, NameLeader, PartitionLog, Refuse, Scene, play
from builders.sdk.simulated_consumers import TOPIC, Ground, values
from builders.sdk.simulated_consumers import play as play_broker
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.connection.connection import BrokerConnection
from millstream.sdk.connection.retry_policy import BACKOFF_FIRST_S, BACKOFF_MAX_S, Deadline
from millstream.sdk.producing.chunk import ProducerBatch
from millstream.sdk.producing.failures import OutcomeUnknownError
from millstream.sdk.producing.leader_route import LeaderRoute
from millstream.sdk.responses import Produced

NOT_LEADER = Refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def topic_with_epochs(scene: Scene, partitions: int = 1) -> list[PartitionLog]:
    """Make a topic with an id and leader epochs, at brokers that name leaders."""
    scene.cluster.names_leaders = True
    scene.cluster.topic_ids["t"] = UUID(int=1)
    logs = scene.cluster.topic("t", partitions)
    for log in logs:
        log.epoch = 0
    return logs


def test_retry_after_leader_change_stores_one_copy() -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        await put("t", b"a")
        scene.cluster.then("Produce", Depose(leader=2))
        assert (await put("t", b"b")).offset == 1
        assert (await put("t", b"c")).offset == 2
        assert scene.cluster.topics["t"][0].values == [b"a", b"b", b"c"]
        assert scene.cluster.requests("Produce") == [1, 1, 2, 2]
        assert len(scene.cluster.requests("InitProducerId")) == 1

    play(body, nodes=2)


def test_batches_in_flight_keep_their_numbers_when_the_leader_changes() -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene, batch_count=1)
        await put("t", b"first")
        scene.cluster.then("Produce", Depose(leader=2))  # The batches behind it meet a broker that leads no longer.
        receipts = [put("t", b"%d" % number) for number in range(5)]
        assert [(await receipt).offset for receipt in receipts] == [1, 2, 3, 4, 5]
        assert scene.cluster.topics["t"][0].values == [b"first", b"0", b"1", b"2", b"3", b"4"]
        assert len(scene.cluster.topics["t"][0].producers) == 1

    play(body, nodes=2)


def test_a_duplicate_at_the_new_leader_counts_as_stored_without_an_offset() -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        scene.cluster.then("Produce", Depose(leader=2), Refuse(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
        assert (await put("t", b"a")).offset == -1
        assert scene.cluster.topics["t"][0].values == [b"a"]

    play(body, nodes=2)


def test_a_batch_in_doubt_at_the_deadline_is_reported_as_outcome_unknown() -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene, timeout_s=3.0)
        await put("t", b"a")
        scene.cluster.then("Produce", Depose(leader=1), *[NOT_LEADER] * 100)
        with pytest.raises(OutcomeUnknownError, match="NOT_LEADER_OR_FOLLOWER") as caught:
            await put("t", b"b")
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        scene.cluster.faults.clear()
        assert (await put("t", b"c")).offset == 2
        log = scene.cluster.topics["t"][0]
        assert log.values == [b"a", b"b", b"c"], "the later batch neither repeats nor replaces the one in doubt"
        assert len(log.producers) == 2, "a batch behind one in doubt goes under another identity"

    play(body)


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_a_batch_in_doubt_is_not_renumbered(code: ErrorCode) -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        await put("t", b"a")
        scene.cluster.then("Produce", Depose(leader=2), Refuse(code))
        with pytest.raises(OutcomeUnknownError, match=code.name):
            await put("t", b"b")
        assert scene.cluster.topics["t"][0].values == [b"a", b"b"]

    play(body, nodes=2)


@pytest.mark.parametrize("fault", [Depose(leader=2), NOT_LEADER])
def test_a_batch_in_doubt_is_not_resent_when_it_has_no_sequence_number(fault: Fault) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t")
        scene.cluster.then("Produce", fault)
        with pytest.raises(OutcomeUnknownError):
            await Put(scene, acks=1)("t", b"a")
        assert scene.cluster.requests("Produce") == [1]

    play(body, nodes=2)


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_batch_that_was_refused_before_the_append_is_retried_and_stored_once(acks: int) -> None:
    async def story(ground: Ground) -> None:
        partitions = ground.node._partitions
        assert partitions is not None
        async with await ground.machine.connect("writer2") as client, client.producer(acks=acks) as producer:
            await producer.put(TOPIC, b"before")
            await move_leader(partitions._catalog, partitions, (TOPIC, 0), ELSEWHERE.node_id)
            receipt = producer.put(TOPIC, b"a")
            await asyncio.sleep(1.0)
            assert not receipt.done(), "no broker has confirmed or appended it"
            await move_leader(partitions._catalog, partitions, (TOPIC, 0), partitions.cluster.node_id)
            assert (await receipt).offset == 1
            found = await client.read(TOPIC, 0, 0)
            assert values(found.messages) == [b"before", b"a"]

    play_broker(story)


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_leader_that_is_unknown_before_anything_is_sent_leaves_nothing_in_doubt(acks: int) -> None:
    async def body(scene: Scene) -> None:
        log = scene.cluster.topic("t")[0]
        log.leader = -1
        put = Put(scene, timeout_s=3.0, acks=acks)
        with pytest.raises(MillstreamError, match="LEADER_NOT_AVAILABLE") as caught:
            await put("t", b"a")
        assert not isinstance(caught.value, OutcomeUnknownError)
        assert scene.cluster.requests("Produce") == []
        assert len(scene.cluster.requests("Metadata")) < 15, "the metadata is asked for with a growing backoff"
        log.leader = 1
        assert (await put("t", b"b")).offset == 0

    play(body)


def test_a_partition_queue_starts_a_new_sequence_behind_a_batch_in_doubt() -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene, timeout_s=3.0)
        await put("t", b"a")
        queue = put.engine._queues[TopicPartition("t", 0)]
        before = queue._identity
        scene.cluster.then("Produce", *[NOT_LEADER] * 100)
        with pytest.raises(OutcomeUnknownError):
            await put("t", b"lost")
        scene.cluster.faults.clear()
        await put("t", b"c")
        assert queue._identity != before
        assert scene.cluster.topics["t"][0].values == [b"a", b"c"]

    play(body)


def test_messages_to_a_led_partition_are_stored_while_another_has_no_leader() -> None:
    async def body(scene: Scene) -> None:
        logs = scene.cluster.topic("t", 2)
        logs[1].leader = -1
        put = Put(scene)
        for number in range(10):
            await put("t", b"%d" % number, partition=0)
        assert len(logs[0].values) == 10
        assert len(scene.cluster.requests("Metadata")) == 1

    play(body)


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_message_with_an_id_in_doubt_is_sent_again_and_stored_once(
    acks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Produced] = []
    sent = asyncio.Event()

    async def answer_lost(
        self: LeaderRoute, connection: BrokerConnection, batch: ProducerBatch, deadline: Deadline
    ) -> Produced:
        answers.append(await send(self, connection, batch, deadline))
        sent.set()
        raise MillstreamError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leadership was lost after the append")

    send = LeaderRoute.send

    async def story(ground: Ground) -> None:
        async with await ground.machine.connect("writer2") as client, client.producer(acks=acks) as producer:
            await producer.put(TOPIC, b"before")
            with monkeypatch.context() as patched:
                patched.setattr(LeaderRoute, "send", answer_lost)
                receipt = producer.put(TOPIC, b"a", message_id=b"mine")
                await sent.wait()
            assert (await receipt).offset == 1
            assert [answer.base_offset for answer in answers] == [1]
            found = await client.read(TOPIC, 0, 0)
            assert values(found.messages) == [b"before", b"a"]

    play_broker(story)


def test_a_named_leader_is_asked_without_a_metadata_request() -> None:
    async def body(scene: Scene) -> None:
        (log,) = topic_with_epochs(scene)
        put = Put(scene)
        await put("t", b"a")
        for number, leader in enumerate((2, 3, 1), 1):
            scene.cluster.move(log, leader)
            assert (await put("t", b"%d" % number)).offset == number
        assert log.values == [b"a", b"1", b"2", b"3"]
        assert scene.cluster.requests("Produce") == [1, 1, 2, 2, 3, 3, 1]
        assert len(scene.cluster.requests("Metadata")) == 1
        assert len(log.producers) == 1, "the retries keep their identity"

    play(body, nodes=3)


def test_a_named_leader_is_asked_without_a_backoff() -> None:
    async def body(scene: Scene) -> None:
        (log,) = topic_with_epochs(scene)
        put = Put(scene)
        for leader in (1, 2):
            scene.cluster.move(log, leader)
            await put("t", b"opens a connection")
        scene.network.conditions.latency_s = scene.network.conditions.jitter_s = 0.0
        scene.cluster.move(log, 1)
        before_s = scene.loop.time()
        await put("t", b"a")
        assert scene.loop.time() - before_s < BACKOFF_FIRST_S / 2, "less than the shortest backoff"

    play(body, nodes=2)


def test_a_named_leader_is_reached_at_its_address_in_the_refusal() -> None:
    async def body(scene: Scene) -> None:
        (log,) = topic_with_epochs(scene)
        host = scene.cluster.nodes.pop(2)
        put = Put(scene)
        await put("t", b"a")
        scene.cluster.nodes[2] = host
        scene.cluster.move(log, 2)
        assert (await put("t", b"b")).offset == 1
        assert len(scene.cluster.requests("Metadata")) == 1

    play(body, nodes=2)


def test_batches_in_flight_follow_a_named_leader_without_a_metadata_request() -> None:
    async def body(scene: Scene) -> None:
        (log,) = topic_with_epochs(scene)
        put = Put(scene, batch_count=1)
        await put("t", b"first")
        scene.cluster.move(log, 2)
        receipts = [put("t", b"%d" % number) for number in range(5)]
        assert [(await receipt).offset for receipt in receipts] == [1, 2, 3, 4, 5]
        assert log.values == [b"first", b"0", b"1", b"2", b"3", b"4"]
        assert len(scene.cluster.requests("Metadata")) == 1

    play(body, nodes=2)


def test_a_batch_appended_by_a_deposed_leader_is_stored_once_at_the_new_one() -> None:
    async def body(scene: Scene) -> None:
        (log,) = topic_with_epochs(scene)
        put = Put(scene)
        await put("t", b"a")
        scene.cluster.then("Produce", Depose(leader=2))
        assert (await put("t", b"b")).offset == 1
        assert log.values == [b"a", b"b"]
        assert scene.cluster.requests("Produce") == [1, 1, 2]
        assert len(scene.cluster.requests("Metadata")) == 1

    play(body, nodes=2)


def test_brokers_that_name_each_other_are_not_sent_batches_in_a_busy_loop() -> None:
    async def body(scene: Scene) -> None:
        topic_with_epochs(scene)
        put = Put(scene, timeout_s=30.0)
        scene.cluster.then("Produce", *[NameLeader(2, 4), NameLeader(1, 4)] * 1_000)
        with pytest.raises(OutcomeUnknownError):
            await put("t", b"a")
        assert len(scene.cluster.requests("Produce")) <= 2 * (30.0 / BACKOFF_MAX_S + 10)

    play(body, nodes=2)


def test_outdated_metadata_does_not_move_a_producer_to_an_older_leader() -> None:
    async def body(scene: Scene) -> None:
        (log,) = topic_with_epochs(scene)
        put = Put(scene)
        await put("t", b"a")
        scene.cluster.lag(1)
        scene.cluster.move(log, 2)
        await put("t", b"b")
        scene.cluster.then("Produce", *[Cut(after=False)] * 3)
        assert (await put("t", b"c")).offset == 2
        assert scene.cluster.requests("Metadata").count(1) > 1, "the broker that lags behind was asked again"
        assert scene.cluster.requests("Produce") == [1, 1, 2, 2, 2, 2, 2]

    play(body, nodes=2)
