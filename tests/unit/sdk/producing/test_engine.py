"""The engine stores each message once and in order, whatever happens on the way, and says what it knows."""

import asyncio
from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.sdk.engines import Put
from builders.sdk.scripted_broker import Cut, Fault, Late, Refuse, Scene, Silence, play
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.producing.failures import OutcomeUnknownError, UnstoredError
from millstream.sdk.producing.partition_queue import IDS_MAX

RETRIED: list[Fault] = [
    Cut(after=False),
    Cut(after=True),
    Silence(),
    Refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER),
    Refuse(ErrorCode.KAFKA_STORAGE_ERROR),
    Refuse(ErrorCode.REQUEST_TIMED_OUT),
]


def test_a_message_is_stored_and_its_receipt_tells_where() -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        receipt = put("t", b"v", key=b"k", headers={"h": "x"}, time_ms=77)
        assert not receipt.done()
        place = await receipt
        assert receipt.done()
        assert (place.topic, place.partition, place.offset, place.timestamp_ms) == ("t", 0, 0, 77)
        assert receipt.result() == place
        assert receipt.exception() is None
        (record,) = scene.cluster.topics["t"][0].records
        assert (record.key, record.value, record.timestamp) == (b"k", b"v", 77)
        assert list(record.headers) == [("h", b"x")]

    play(body)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([1, 1, 2, 7]), st.lists(st.sampled_from(RETRIED), max_size=3)), max_size=12))
def test_order_and_number_are_kept_with_many_batches_under_way_and_any_mix_of_faults(
    script: list[tuple[int, list[Fault]]],
) -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene, request_timeout_s=1.0, linger_s=0.0, batch_count=2, timeout_s=600.0)
        receipts = []
        for number, (count, faults) in enumerate(script):
            scene.cluster.then("Produce", *faults)
            receipts += [put("t", b"%d-%d" % (number, each)) for each in range(count)]
            await asyncio.sleep(0.001 * (number % 3))
        places = [await receipt for receipt in receipts]
        assert [place.offset for place in places] == list(range(len(receipts)))
        expected = [b"%d-%d" % (number, each) for number, (count, _) in enumerate(script) for each in range(count)]
        if expected:
            assert scene.cluster.topics["t"][0].values == expected
        assert put.engine.intake.held_bytes == 0

    play(body)


def test_messages_without_a_key_take_turns_by_batch_and_keys_decide_where_there_are_any() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", 4)
        put = Put(scene, batch_count=10)
        receipts = [put("t", b"%d" % number) for number in range(40)]
        places = [await receipt for receipt in receipts]
        assert sorted(place.partition for place in places[::10]) == [0, 1, 2, 3]
        assert all(places[at].partition == places[at + 9].partition for at in range(0, 40, 10))
        keyed = await put.many("t", [b""] * 50, keys=[b"k%d" % (number % 5) for number in range(50)])
        assert len({(place.partition, number % 5) for number, place in enumerate(keyed)}) == 5

    play(body)


@pytest.mark.parametrize(
    ("given", "partition"),
    [({"partition": 3}, 3), ({"hash": 6, "key": b"x"}, 2), ({"hash": -1}, 3), ({"partition": 1, "key": b"x"}, 1)],
)
def test_a_partition_or_a_hash_that_is_given_decides(given: dict[str, object], partition: int) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", 4)
        assert (await Put(scene)("t", b"v", **given)).partition == partition

    play(body)


def test_what_lingers_goes_together_and_what_is_waited_for_does_not_linger() -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene, linger_s=5.0)
        first = [put("t", b"a"), put("t", b"b")]
        begun_s = scene.loop.time()
        await first[1]
        assert scene.loop.time() - begun_s < 1
        second = put("t", b"c")
        await asyncio.sleep(4.9)
        assert not second.done()
        put("t", b"d")
        await asyncio.sleep(1)
        assert second.done()
        assert [len(batch) > 0 for batch in scene.cluster.topics["t"][0].batches] == [True, True]

    play(body)


@pytest.mark.parametrize("stored", [False, True])
def test_what_nobody_answers_for_has_an_unknown_outcome_and_does_not_swallow_the_next(stored: bool) -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene, request_timeout_s=2.0, timeout_s=5.0)
        await put("t", b"a")
        scene.cluster.then("Produce", *[Cut(after=stored)] * 100)
        with pytest.raises(OutcomeUnknownError, match="not known whether"):
            await put("t", b"b")
        scene.cluster.faults.clear()
        await put("t", b"c")
        assert scene.cluster.topics["t"][0].values == ([b"a", b"b", b"c"] if stored else [b"a", b"c"])

    play(body)


def test_a_refusal_in_the_middle_of_what_is_under_way_fails_only_its_own_batch() -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene, batch_count=1)
        await put("t", b"first")
        scene.cluster.then("Produce", Refuse(ErrorCode.INVALID_RECORD))
        receipts = [put("t", b"%d" % number) for number in range(5)]
        with pytest.raises(MillstreamError, match="INVALID_RECORD"):
            await receipts[0]
        assert [(await receipt).offset for receipt in receipts[1:]] == [1, 2, 3, 4]
        assert scene.cluster.topics["t"][0].values == [b"first", b"1", b"2", b"3", b"4"]

    play(body)


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE])
def test_a_batch_that_its_topic_finds_too_large_is_halved(code: ErrorCode) -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        scene.cluster.then("Produce", Refuse(code), Refuse(code))
        receipts = [put("t", b"%d" % number, key=b"k") for number in range(8)]
        assert [(await receipt).offset for receipt in receipts] == list(range(8))
        assert len(scene.cluster.topics["t"][0].batches) == 3
        scene.cluster.then("Produce", Refuse(code))
        with pytest.raises(MillstreamError, match=code.name):
            await put("t", b"alone")

    play(body)


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH]
)
def test_a_producer_that_its_broker_has_forgotten_gets_a_new_identity(code: ErrorCode) -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        await put("t", b"a")
        scene.cluster.then("Produce", Refuse(code))
        assert (await put("t", b"b")).offset == 1
        assert len(scene.cluster.requests("InitProducerId")) == 2

    play(body)


def test_a_topic_that_cannot_be_had_fails_its_messages_and_no_others() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.auto_create = False
        scene.cluster.topic("good")
        put = Put(scene)
        bad, good = put("bad", b"v"), put("good", b"v")
        assert (await good).offset == 0
        with pytest.raises(MillstreamError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await bad
        with pytest.raises(MillstreamError, match="INVALID_TOPIC"):
            put("a/b", b"v")
        assert put.engine.intake.held_bytes == 0

    play(body)


@pytest.mark.parametrize("alone", [True, False])
def test_messages_that_cannot_be_encoded_fail_and_hold_up_nobody(alone: bool) -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene, batch_count=2)
        if not alone:
            await put("t", b"before")
        bad = [put("t", b"a", time_ms=-(2**63)), put("t", b"b", time_ms=2**63 - 1)]
        good = put("t", b"good")
        for receipt in bad:
            with pytest.raises(MillstreamError, match=r"INVALID_RECORD.*too far apart"):
                await receipt
        assert (await good).offset == (0 if alone else 1)

    play(body)


@pytest.mark.parametrize("wrong", [ValueError("a user's mistake"), SystemExit(1), KeyboardInterrupt()])
def test_callbacks_are_called_once_each_and_harm_nobody(wrong: BaseException) -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        called = []

        def fails(receipt: object) -> None:
            called.append("failing")
            raise wrong

        first = put("t", b"a", on_done=fails)
        second = put("t", b"b", on_done=lambda receipt: called.append(receipt.result().offset))
        second.add_done_callback(lambda receipt: called.append("again"))
        await second
        assert called == ["failing", 1, "again"]
        first.add_done_callback(lambda receipt: called.append("late"))
        await asyncio.sleep(0)
        assert called[3:] == ["late"]

    play(body)


def test_many_at_once_have_one_receipt_with_all_places() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", 3)
        put = Put(scene, batch_count=7)
        called: list[int] = []
        keys = [b"k%d" % number if number % 2 else None for number in range(30)]
        receipts = put.many("t", [b"%d" % number for number in range(30)], keys=keys)
        receipts.add_done_callback(lambda done: called.append(len(done)))
        places = await receipts
        assert called == [30]
        assert len(places) == 30
        assert [place.offset for place in places] == list(places.offsets)
        assert [place.partition for place in places] == list(places.partitions)
        logs = scene.cluster.topics["t"]
        for number, place in enumerate(places):
            assert logs[place.partition].records[place.offset].value == b"%d" % number
        assert receipts[-1].result() == places[29]
        assert receipts.done()
        assert len(await put.many("t", [])) == 0

    play(body)


@pytest.mark.parametrize("value", ["abc", b"abc", bytearray(b"abc")])
def test_one_value_is_not_taken_for_many(value: Any) -> None:
    async def body(scene: Scene) -> None:
        with pytest.raises(TypeError, match="put takes one"):
            Put(scene).many("t", value)

    play(body)


@pytest.mark.parametrize("columns", [{"keys": [b"k"]}, {"headers": [None] * 3}, {"timestamps_ms": [1]}, {"ids": []}])
def test_columns_of_different_length_are_refused_before_anything_is_sent(columns: dict[str, list[object]]) -> None:
    async def body(scene: Scene) -> None:
        with pytest.raises(MillstreamError, match=r"there are 2 values but"):
            Put(scene).many("t", [b"a", b"b"], **columns)

    play(body)


def test_flushing_waits_for_everything_and_tells_what_nobody_has_asked_after() -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene, linger_s=60.0)
        stored = put("t", b"a")
        await put.engine.flush(10)
        assert stored.done()
        scene.cluster.then("Produce", Refuse(ErrorCode.INVALID_RECORD))
        put("t", b"b")
        with pytest.raises(UnstoredError, match="1 message was not confirmed") as caught:
            await put.engine.flush(10)
        assert (caught.value.count, caught.value.in_doubt, caught.value.code) == (1, 0, ErrorCode.INVALID_RECORD)
        scene.cluster.then("Produce", Refuse(ErrorCode.INVALID_RECORD))
        assert put("t", b"c").done() is False
        asked = put("t", b"d")
        with pytest.raises(MillstreamError):
            await asked
        with pytest.raises(UnstoredError, match="1 message was"):
            await put.engine.flush(10)
        await put.engine.flush(10)

    play(body)


def test_closing_flushes_and_what_cannot_be_flushed_in_time_is_said_to_be_in_doubt_or_not_sent() -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene, batch_count=1)
        stored = put("t", b"a")
        await put.close(10)
        assert stored.result().offset == 0
        with pytest.raises(MillstreamError, match="the producer is closed"):
            put("t", b"late")

        put = Put(scene, batch_count=1)
        await put("t", b"b")
        scene.cluster.then("Produce", *[Silence()] * 20)
        receipts = [put("t", b"%d" % number) for number in range(9)]
        with pytest.raises(UnstoredError, match="9 messages were not confirmed, 5 of which may have been stored"):
            await put.close(3)
        unknown = [isinstance(receipt.exception(), OutcomeUnknownError) for receipt in receipts]
        assert unknown == [True] * 5 + [False] * 4

    play(body)


def test_a_put_beyond_the_memory_a_producer_may_hold_is_refused_on_the_event_loop_until_there_is_room() -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene, max_bytes=2_000, linger_s=1.0)
        taken = [put("t", b"v" * 100) for _ in range(10)]
        with pytest.raises(MillstreamError, match=r"PRODUCER_FULL.*await producer\.room"):
            put("t", b"v" * 100)
        assert put.engine.intake.held_bytes <= 2_000
        await put.engine.room()
        taken.append(put("t", b"v" * 100))
        assert [(await receipt).offset for receipt in taken] == list(range(len(taken)))
        assert put.engine.intake.held_bytes == 0
        assert (await put.many("t", [b"v" * 10_000]))[0].offset == len(taken)

    play(body)


def test_blocking_on_the_event_loop_that_does_the_work_is_refused() -> None:
    async def body(scene: Scene) -> None:
        receipt = Put(scene)("t", b"v")
        with pytest.raises(MillstreamError, match="CLIENT_MISUSED"):
            receipt.result()
        await receipt

    play(body)


def test_whoever_stops_waiting_does_not_stop_the_message() -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        await put("t", b"a")
        scene.cluster.then("Produce", Silence())
        receipt = put("t", b"b")
        other = asyncio.ensure_future(receipt)
        await asyncio.sleep(1)
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
        assert (await receipt).offset == 1

    play(body)


def test_the_id_of_a_message_is_its_place_in_its_batch_or_its_own_when_asked_for_early() -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        early, late, later = (put("t", value) for value in (b"a", b"b", b"c"))
        own = early.message_id
        await later
        assert early.message_id == own
        assert not own.startswith(b"~")
        assert (late.message_id, later.message_id) == (b"~1001.0.0.0.0", b"~1001.0.0.0.1")
        assert (await late).message_id == late.message_id

    play(body)


def test_a_broker_that_keeps_no_ids_refuses_retries_under_one_and_repeats_nothing_that_only_an_id_would_tell() -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        with pytest.raises(MillstreamError, match="keeps no message ids"):
            await put("t", b"a", message_id=b"mine")
        scene.cluster.then("Produce", Cut(after=True))
        asked = put("t", b"b")
        assert asked.message_id
        with pytest.raises(OutcomeUnknownError):
            await asked
        assert scene.cluster.topics["t"][0].values == [b"b"]

    play(body)


def test_a_number_that_was_told_as_part_of_an_id_is_not_taken_back() -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        await put("t", b"a")
        scene.cluster.then("Produce", Late(1.0), Refuse(ErrorCode.UNKNOWN_PRODUCER_ID))
        first, second = put("t", b"b"), None
        await asyncio.sleep(0.1)
        second = put("t", b"c")
        await asyncio.sleep(0.1)
        told = second.message_id
        assert told.startswith(b"~")
        await first
        with pytest.raises(MillstreamError, match="UNKNOWN_PRODUCER_ID"):
            await second
        assert second.message_id == told

    play(body)


def test_a_message_that_never_left_has_an_id_of_its_own() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.auto_create = False
        receipt = Put(scene)("t", b"v")
        with pytest.raises(MillstreamError, match="UNKNOWN_TOPIC"):
            await receipt
        assert len(receipt.message_id) == 32
        assert receipt.message_id == receipt.message_id

    play(body)


def test_a_batch_has_no_more_ids_than_a_request_may_have() -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        count = 2 * IDS_MAX + 5
        ids = [b"%d" % number for number in range(count)]
        receipts = put.many("t", [b""] * count, ids=ids)
        with pytest.raises(UnstoredError):  # The scripted broker keeps no ids; what matters is how it was asked.
            await receipts
        assert max(batch.count for batch, _, _ in receipts.runs()) <= IDS_MAX

    play(body)


@pytest.mark.parametrize("blocking", [False, True])
def test_whoever_asked_a_receipt_and_waits_no_longer_leaves_nothing_behind(blocking: bool) -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        scene.network.block("broker1")
        receipt = put("t", b"v")
        late: list[BaseException] = []

        def ask() -> None:
            try:
                receipt.result(0.0)
            except TimeoutError as error:
                late.append(error)

        for _ in range(3):
            if blocking:
                asking = Thread(target=ask)
                asking.start()
                asking.join()
            else:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(receipt, 0.01)
        chunk, _ = receipt.in_chunk()
        assert not chunk.waiters
        assert len(late) == (3 if blocking else 0)
        scene.network.unblock("broker1")
        await receipt

    play(body)
