"""Tests outcomes and retries of the producer after lost answers, refusals and duplicates."""

import pytest

from builders.sdk.engines import Put
from builders.sdk.scripted_broker import Cut, Fault, Refuse, Scene, Silence, play
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.producing.failures import OutcomeUnknownError


@pytest.mark.parametrize("code", [ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_a_refusal_after_a_lost_answer_leaves_the_outcome_unknown(code: ErrorCode) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.then("Produce", Cut(after=True), Refuse(code))
        with pytest.raises(OutcomeUnknownError):
            await Put(scene)("t", b"a")
        assert scene.cluster.topics["t"][0].values == [b"a"]

    play(body)


def test_a_duplicate_whose_offset_is_unknown_counts_as_stored() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.then("Produce", Cut(after=True), Refuse(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
        assert (await Put(scene)("t", b"a")).offset == -1

    play(body)


@pytest.mark.parametrize(("lost", "name"), [(0, "KAFKA_STORAGE_ERROR"), (1, "REQUEST_TIMED_OUT")])
def test_a_disk_error_until_the_deadline_keeps_its_error_code(lost: int, name: str) -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene, timeout_s=3.0)
        await put("t", b"a")
        scene.cluster.then("Produce", *[Cut(after=True)] * lost, *[Refuse(ErrorCode.KAFKA_STORAGE_ERROR)] * 100)
        with pytest.raises(OutcomeUnknownError, match="not known whether") as caught:
            await put("t", b"b")
        assert caught.value.code.name == name
        assert ErrorCode.KAFKA_STORAGE_ERROR.meaning in caught.value.detail
        assert ("the broker reported a disk error" in caught.value.detail) == (not lost)

    play(body)


@pytest.mark.parametrize("last", [Refuse(ErrorCode.NOT_ENOUGH_REPLICAS), Silence()])
def test_a_refusal_is_reported_although_the_last_attempt_was_not_answered(last: Fault) -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene, timeout_s=3.0)
        await put("t", b"a")
        scene.cluster.then("Produce", *[Refuse(ErrorCode.NOT_ENOUGH_REPLICAS)] * 3, *[last] * 100)
        with pytest.raises(MillstreamError) as caught:
            await put("t", b"b")
        assert isinstance(caught.value, OutcomeUnknownError) == (last == Silence())
        assert ErrorCode.NOT_ENOUGH_REPLICAS.meaning in caught.value.detail

    play(body)


def test_a_message_unsent_at_its_deadline_is_reported_as_not_stored() -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene, timeout_s=3.0, batch_count=1)
        scene.cluster.then("Produce", Silence())
        first, second = put("t", b"a"), put("t", b"b")
        with pytest.raises(OutcomeUnknownError):
            await first
        with pytest.raises(MillstreamError, match="nothing was sent") as caught:
            await second
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert not isinstance(caught.value, OutcomeUnknownError)

    play(body)


@pytest.mark.parametrize("acks", [0, 1])
def test_with_acks_0_or_1_nothing_is_sent_twice(acks: int) -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene, acks=acks)
        assert (await put("t", b"a")).offset == (0 if acks else -1)
        assert scene.cluster.requests("InitProducerId") == []
        await put.engine.flush(10)
        assert scene.cluster.topics["t"][0].values == [b"a"]
        scene.cluster.then("Produce", Cut(after=True))
        if acks:
            with pytest.raises(OutcomeUnknownError):
                await put("t", b"b")
        else:
            await put("t", b"b")
            await put.engine.flush(10)  # Does not wait for a lost connection.
        assert scene.cluster.topics["t"][0].values == [b"a", b"b"]

    play(body)


def test_in_order_sends_no_later_message_of_a_partition_after_a_failed_one() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", 2)
        put = Put(scene, batch_count=1, in_order=True)
        await put("t", b"first", partition=0)
        scene.cluster.then("Produce", Refuse(ErrorCode.INVALID_RECORD))
        receipts = [put("t", b"%d" % number, partition=0) for number in range(3)]
        with pytest.raises(MillstreamError, match="INVALID_RECORD"):
            await receipts[0]
        for receipt in receipts[1:]:
            with pytest.raises(MillstreamError, match="nothing was sent; a message before it was not stored"):
                await receipt
        assert (await put("t", b"elsewhere", partition=1)).offset == 0
        assert scene.cluster.topics["t"][0].values == [b"first"]

    play(body)


def test_sequence_numbers_wrap_around_before_they_become_negative() -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        await put("t", b"a")
        log = scene.cluster.topics["t"][0]
        queue = put.engine._queues[TopicPartition("t", 0)]
        assert queue._identity is not None
        queue._next_sequence = 2**31 - 2
        log.producers[queue._identity.producer_id] = [(2**31 - 3, 1, 0)]
        await put.many("t", [b"b", b"c"])
        await put("t", b"d")
        assert log.values == [b"a", b"b", b"c", b"d"]
        assert queue._next_sequence == 1

    play(body)


def test_putting_no_messages_sends_no_request() -> None:
    async def body(scene: Scene) -> None:
        assert len(await Put(scene).many("t", [])) == 0
        assert scene.cluster.seen == []

    play(body)
