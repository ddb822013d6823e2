"""Messages on their way to partitions, and the account of what was stored; against a broker in memory."""

import pytest

from builders.scripted_broker import Refuse, Scene, play
from penstock.cli.messages import Message, Portion
from penstock.cli.writing import How, Stored, name_first, send
from penstock.model.errors import ErrorCode, PenstockError
from penstock.sdk.putting import Place, PutError

HOW = How("t", "none", -1, 30.0)


def places(*offsets: int, partition: int = 0) -> list[Place]:
    return [Place("t", partition, offset) for offset in offsets]


def account(stored: Stored, capsys: pytest.CaptureFixture[str]) -> str:
    stored.tell()
    return capsys.readouterr().out


def test_messages_go_to_the_partitions_they_name_and_come_back_in_order() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", 3)
        messages = [Message(b"%d" % number, partition=number % 3) for number in range(6)]
        assert await send(scene.client(), messages, HOW) == [Place("t", n % 3, n // 3) for n in range(6)]
        assert scene.cluster.topics["t"][1].values == [b"1", b"4"]

    play(body)


def test_times_keys_and_headers_are_sent_where_they_are_given() -> None:
    async def body(scene: Scene) -> None:
        await send(scene.client(), [Message(None, b"k", (("h", b"1"),), 0, 17), Message(b"v", partition=0)], HOW)
        first, second = scene.cluster.topics["t"][0].records
        assert (first.timestamp, first.key, first.value, first.headers) == (17, b"k", None, (("h", b"1"),))
        assert (second.key, second.value, second.headers) == (None, b"v", ())
        assert second.timestamp > 1_000_000_000_000

    play(body)


def test_of_a_portion_that_is_refused_in_part_the_first_message_is_named() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", 2)
        client = scene.client()
        await client.put("t", [b"warm"], partition=0)
        scene.cluster.then("Produce", Refuse(ErrorCode.INVALID_RECORD))
        portion = Portion([Message(b"a", partition=0), Message(b"b", partition=1)], [(0, "here", 7)])
        with pytest.raises(PutError) as caught:
            await send(client, portion.messages, HOW)
        error = caught.value
        assert error.places[0] is None
        assert error.places[1] is not None
        stored = Stored("t", as_json=False, answered=True)
        name_first(error, portion, stored)
        assert error.detail.endswith("the first it concerns is line 7 of here")
        assert stored.so_far == "1 message was stored"

    play(body)


def test_an_unknown_partition_is_an_error_of_its_own() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", 2)
        with pytest.raises(PenstockError, match="has no partition 9"):
            await send(scene.client(), [Message(b"a", partition=9)], HOW)

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
        ([Place("t", number, 0) for number in range(9)], "Stored 9 messages in t, in 9 partitions.\n"),
    ],
)
def test_the_account_says_how_many_and_where(found: list[Place], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    stored = Stored("t", as_json=False, answered=True)
    stored.add(found)
    assert account(stored, capsys) == said


def test_nobody_says_stored_of_what_nobody_answered_for(capsys: pytest.CaptureFixture[str]) -> None:
    stored = Stored("t", as_json=False, answered=False)
    assert stored.so_far == "nothing was sent"
    stored.add(places(-1, -1))
    assert stored.so_far == "2 messages were sent"
    assert account(stored, capsys) == "Sent 2 messages to t.\n"


def test_programs_get_each_place_as_it_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    stored = Stored("t", as_json=True, answered=True)
    stored.add(places(5))
    assert capsys.readouterr().out == '{"topic": "t", "partition": 0, "offset": 5}\n'
    assert account(stored, capsys) == ""
