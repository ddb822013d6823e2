"""Tests how messages are sent, and the summary of what was stored, against an in-memory broker."""

from collections.abc import Sequence
from typing import Any

import pytest

from builders.sdk.scripted_broker import Late, Refuse, Scene, play
from millstream.cli.messages.message_input import MessageChunk, MessageToPut
from millstream.cli.messages.topic_writes import Outcome, StoredSummary, send, take_account
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.message_id import ID_HEADER
from millstream.model.names import TopicPartition
from millstream.sdk.producing.chunk import ProducerChunk, PutResult, Receipt
from millstream.sdk.producing.failures import OutcomeUnknownError
from millstream.sdk.producing.options import ProducerSettings


def place(partition: int, offset: int) -> PutResult:
    return PutResult("t", partition, offset, Receipt(ProducerChunk("t", None, ProducerSettings()), 0))


def places(*offsets: int, partition: int = 0) -> list[PutResult]:
    return [place(partition, offset) for offset in offsets]


async def sent(scene: Scene, messages: Sequence[MessageToPut], **options: Any) -> list[Outcome]:
    producer = scene.client().producer(ProducerSettings(**options))
    outcomes = await send(producer, messages, "t")
    await producer.close()
    return outcomes


def account(stored: StoredSummary, capsys: pytest.CaptureFixture[str]) -> str:
    stored.tell()
    return capsys.readouterr().out


def test_messages_go_to_their_partitions_and_outcomes_keep_the_order() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", 3)
        messages = [MessageToPut(b"%d" % number, partition=number % 3) for number in range(6)]
        assert await sent(scene, messages) == [place(n % 3, n // 3) for n in range(6)]
        assert scene.cluster.topics["t"][1].values == [b"1", b"4"]

    play(body)


def test_timestamps_keys_and_headers_are_sent_if_given() -> None:
    async def body(scene: Scene) -> None:
        await sent(scene, [MessageToPut(None, b"k", (("h", b"1"),), 0, 17), MessageToPut(b"v", partition=0)])
        first, second = scene.cluster.topics["t"][0].records
        assert (first.timestamp, first.key, first.value, first.headers) == (17, b"k", None, (("h", b"1"),))
        assert (second.key, second.value, second.headers) == (None, b"v", ())
        assert second.timestamp > 1_000_000_000_000

    play(body)


def test_a_partly_refused_chunk_raises_with_the_line_of_the_first_failure() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", 2)
        await sent(scene, [MessageToPut(b"warm", partition=0)])
        scene.cluster.then("Produce", Refuse(ErrorCode.INVALID_RECORD))
        portion = MessageChunk([MessageToPut(b"a", partition=0), MessageToPut(b"b", partition=1)], [(0, "here", 7)])
        outcomes = await sent(scene, portion.messages)
        stored = StoredSummary("t", as_json=False, answered=True)
        with pytest.raises(MillstreamError, match="the first failed message is line 7 of here") as caught:
            take_account(outcomes, portion, stored)
        assert caught.value.code is ErrorCode.INVALID_RECORD
        assert stored.so_far == "1 message was stored"

    play(body)


def test_no_message_is_stored_after_a_refused_one_of_its_partition() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", 2)
        too_large = Refuse(ErrorCode.MESSAGE_TOO_LARGE)
        scene.cluster.then("Produce", too_large, Late(0), too_large, too_large)
        portion = MessageChunk([MessageToPut(b"%d" % number, partition=0) for number in range(4)], [(0, "here", 1)])
        stored = StoredSummary("t", as_json=False, answered=True)
        with pytest.raises(MillstreamError, match="the first failed message is line 3 of here") as caught:
            take_account(await sent(scene, portion.messages, in_order=True), portion, stored)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert scene.cluster.topics["t"][0].values == [b"0", b"1"]

    play(body)


def test_an_unknown_outcome_is_raised_when_another_message_was_refused() -> None:
    refused = MillstreamError(ErrorCode.INVALID_RECORD, "refused")
    lost = OutcomeUnknownError(TopicPartition("t", 1), refused, unanswered=True)
    portion = MessageChunk([MessageToPut(b"a"), MessageToPut(b"b"), MessageToPut(b"c")], [(0, "here", 1)])
    with pytest.raises(OutcomeUnknownError, match=r"the first failed message is line 2 of here$"):
        take_account([place(0, 0), refused, lost], portion, StoredSummary("t", as_json=False, answered=True))


def test_an_unknown_partition_is_an_error() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", 2)
        (outcome,) = await sent(scene, [MessageToPut(b"a", partition=9)])
        assert isinstance(outcome, MillstreamError)
        assert "has no partition 9" in outcome.detail

    play(body)


def test_an_id_header_becomes_the_message_id() -> None:
    async def body(scene: Scene) -> None:
        (outcome,) = await sent(scene, [MessageToPut(b"a", headers=((ID_HEADER, b"order-1"), ("h", b"1")))])
        assert isinstance(outcome, MillstreamError)  # The scripted broker does not support message ids.
        assert outcome.code is ErrorCode.UNSUPPORTED_VERSION
        with pytest.raises(MillstreamError, match="it is empty"):
            await sent(scene, [MessageToPut(b"a", headers=((ID_HEADER, None),))])

    play(body)


def test_messages_with_acks_0_have_arrived_when_the_producer_is_closed() -> None:
    async def body(scene: Scene) -> None:
        messages = [MessageToPut(b"%d" % number, partition=0) for number in range(5)]
        assert await sent(scene, messages, acks=0) == places(*[-1] * 5)
        assert scene.cluster.topics["t"][0].values == [message.value for message in messages]

    play(body)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([], "Stored 0 messages in t.\n"),
        (places(5), "Stored in t, partition 0, at offset 5.\n"),
        (places(5, 6, 7), "Stored 3 messages in t, partition 0, at offsets 5 to 7.\n"),
        (places(5, 9), "Stored 2 messages in t, partition 0, between offsets 5 and 9.\n"),
        (places(-1, -1), "Stored 2 messages in t, partition 0.\n"),
        (
            places(5) + places(0, 1, partition=2),
            "Stored 3 messages in t: 1 in partition 0, at offset 5; 2 in partition 2, at offsets 0 to 1.\n",
        ),
        ([place(number, 0) for number in range(9)], "Stored 9 messages in t, in 9 partitions.\n"),
    ],
)
def test_the_summary_shows_the_number_and_the_offsets(
    found: list[PutResult], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = StoredSummary("t", as_json=False, answered=True)
    stored.add(found)
    assert account(stored, capsys) == said


def test_the_summary_with_acks_0_says_sent_and_not_stored(capsys: pytest.CaptureFixture[str]) -> None:
    stored = StoredSummary("t", as_json=False, answered=False)
    assert stored.so_far == "nothing was sent"
    stored.add(places(-1, -1))
    assert stored.so_far == "2 messages were sent"
    assert account(stored, capsys) == "Sent 2 messages to t.\n"


def test_json_output_shows_each_offset_as_soon_as_it_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    stored = StoredSummary("t", as_json=True, answered=True)
    stored.add(places(5))
    assert capsys.readouterr().out == '{"topic": "t", "partition": 0, "offset": 5, "duplicate": false}\n'
    assert account(stored, capsys) == ""
