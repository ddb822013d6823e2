"""What is known, and what is done, when answers are lost, refuse, or come to the same message twice."""

import pytest

from builders.sdk.engines import Put
from builders.sdk.scripted_broker import Cut, Fault, Refuse, Scene, Silence, play
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.producing.failures import OutcomeUnknownError


@pytest.mark.parametrize("code", [ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_a_refusal_after_a_lost_answer_leaves_the_outcome_unknown_and_nothing_is_sent_again(code: ErrorCode) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.then("Produce", Cut(after=True), Refuse(code))
        with pytest.raises(OutcomeUnknownError):
            await Put(scene)("t", b"a")
        assert scene.cluster.topics["t"][0].values == [b"a"]

    play(body)


def test_a_copy_whose_place_is_forgotten_counts_as_stored() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.then("Produce", Cut(after=True), Refuse(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
        assert (await Put(scene)("t", b"a")).offset == -1

    play(body)


@pytest.mark.parametrize(("lost", "name"), [(0, "KAFKA_STORAGE_ERROR"), (1, "REQUEST_TIMED_OUT")])
def test_a_disk_error_until_the_deadline_is_told_as_what_it_is(lost: int, name: str) -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene, timeout_s=3.0)
        await put("t", b"a")
        scene.cluster.then("Produce", *[Cut(after=True)] * lost, *[Refuse(ErrorCode.KAFKA_STORAGE_ERROR)] * 100)
        with pytest.raises(OutcomeUnknownError, match="not known whether") as caught:
            await put("t", b"b")
        assert caught.value.code.name == name
        assert ErrorCode.KAFKA_STORAGE_ERROR.meaning in caught.value.detail
        assert ("the broker's disk refused it" in caught.value.detail) == (not lost)

    play(body)


@pytest.mark.parametrize("last", [Refuse(ErrorCode.NOT_ENOUGH_REPLICAS), Silence()])
def test_a_refusal_until_the_deadline_is_named_although_the_last_attempt_was_not_answered(last: Fault) -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene, timeout_s=3.0)
        await put("t", b"a")
        scene.cluster.then("Produce", *[Refuse(ErrorCode.NOT_ENOUGH_REPLICAS)] * 3, *[last] * 100)
        with pytest.raises(MillstreamError) as caught:
            await put("t", b"b")
        assert isinstance(caught.value, OutcomeUnknownError) == (last == Silence())
        assert ErrorCode.NOT_ENOUGH_REPLICAS.meaning in caught.value.detail

    play(body)


def test_a_message_whose_turn_does_not_come_in_time_is_known_not_to_be_stored() -> None:
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
def test_with_weaker_acknowledgements_nothing_is_sent_twice(acks: int) -> None:
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
            await put.engine.flush(10)  # Does not wait for what cannot answer any more.
        assert scene.cluster.topics["t"][0].values == [b"a", b"b"]

    play(body)


def test_where_order_is_kept_to_the_end_nothing_goes_behind_a_message_that_failed() -> None:
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


def test_numbers_begin_anew_where_they_would_become_negative() -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        await put("t", b"a")
        log = scene.cluster.topics["t"][0]
        line = put.engine._lines[TopicPartition("t", 0)]
        assert line._identity is not None
        line._next_sequence = 2**31 - 2
        log.producers[line._identity.producer_id] = [(2**31 - 3, 1, 0)]
        await put.many("t", [b"b", b"c"])
        await put("t", b"d")
        assert log.values == [b"a", b"b", b"c", b"d"]
        assert line._next_sequence == 1

    play(body)


def test_nothing_is_sent_without_messages() -> None:
    async def body(scene: Scene) -> None:
        assert len(await Put(scene).many("t", [])) == 0
        assert scene.cluster.seen == []

    play(body)
