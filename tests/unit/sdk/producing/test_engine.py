"""Tests that the producer engine stores each message once and in order, and reports the true outcome."""

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


def test_a_receipt_returns_partition_offset_and_timestamp() -> None:
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
def test_messages_are_stored_once_and_in_order_under_any_faults(
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


def test_messages_without_keys_rotate_by_batch_and_keys_choose_a_partition() -> None:
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
def test_a_given_partition_or_hash_chooses_the_partition(given: dict[str, object], partition: int) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", 4)
        assert (await Put(scene)("t", b"v", **given)).partition == partition

    play(body)


def test_a_batch_lingers_until_a_caller_waits_for_one_of_its_messages() -> None:
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
def test_an_unanswered_batch_is_outcome_unknown_and_the_next_is_stored(stored: bool) -> None:
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


def test_a_refused_batch_in_flight_fails_alone() -> None:
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
def test_a_batch_too_large_for_its_topic_is_split(code: ErrorCode) -> None:
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
def test_a_producer_id_unknown_to_the_broker_is_replaced(code: ErrorCode) -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        await put("t", b"a")
        scene.cluster.then("Produce", Refuse(code))
        assert (await put("t", b"b")).offset == 1
        assert len(scene.cluster.requests("InitProducerId")) == 2

    play(body)


def test_an_unknown_topic_fails_only_its_own_messages() -> None:
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
def test_messages_that_cannot_be_encoded_fail_alone(alone: bool) -> None:
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
def test_callbacks_run_once_and_their_exceptions_are_ignored(wrong: BaseException) -> None:
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


def test_put_many_returns_one_receipt_with_all_results() -> None:
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
def test_put_many_refuses_a_single_value(value: Any) -> None:
    async def body(scene: Scene) -> None:
        with pytest.raises(TypeError, match="use put for one value"):
            Put(scene).many("t", value)

    play(body)


@pytest.mark.parametrize("columns", [{"keys": [b"k"]}, {"headers": [None] * 3}, {"timestamps_ms": [1]}, {"ids": []}])
def test_columns_of_different_length_are_refused_before_anything_is_sent(columns: dict[str, list[object]]) -> None:
    async def body(scene: Scene) -> None:
        with pytest.raises(MillstreamError, match=r"there are 2 values but"):
            Put(scene).many("t", [b"a", b"b"], **columns)

    play(body)


def test_flush_waits_for_all_messages_and_raises_unread_failures() -> None:
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


def test_close_flushes_and_reports_unsent_and_unknown_messages() -> None:
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


def test_a_put_into_a_full_buffer_is_refused_on_the_event_loop() -> None:
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


def test_blocking_on_the_producers_event_loop_is_refused() -> None:
    async def body(scene: Scene) -> None:
        receipt = Put(scene)("t", b"v")
        with pytest.raises(MillstreamError, match="CLIENT_MISUSED"):
            receipt.result()
        await receipt

    play(body)


def test_cancelling_a_wait_does_not_cancel_the_message() -> None:
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


def test_a_message_id_comes_from_the_batch_unless_read_before_sending() -> None:
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


def test_a_broker_without_message_ids_refuses_own_ids_and_gets_no_retries() -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        with pytest.raises(MillstreamError, match="does not support message ids"):
            await put("t", b"a", message_id=b"mine")
        scene.cluster.then("Produce", Cut(after=True))
        asked = put("t", b"b")
        assert asked.message_id
        with pytest.raises(OutcomeUnknownError):
            await asked
        assert scene.cluster.topics["t"][0].values == [b"b"]

    play(body)


def test_a_sequence_number_in_an_id_that_was_read_is_not_reused() -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        await put("t", b"a")
        scene.cluster.then("Produce", Late(1.0), Refuse(ErrorCode.UNKNOWN_PRODUCER_ID))
        first, second = put("t", b"b"), None
        await asyncio.sleep(0.1)
        second = put("t", b"c")
        await asyncio.sleep(0.1)
        known_id = second.message_id
        assert known_id.startswith(b"~")
        await first
        with pytest.raises(MillstreamError, match="UNKNOWN_PRODUCER_ID"):
            await second
        assert second.message_id == known_id

    play(body)


def test_an_unsent_message_has_a_random_id() -> None:
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
        with pytest.raises(UnstoredError):  # The scripted broker has no message ids; only the requests matter here.
            await receipts
        assert max(batch.count for batch, _, _ in receipts.runs()) <= IDS_MAX

    play(body)


@pytest.mark.parametrize("blocking", [False, True])
def test_a_timed_out_wait_leaves_no_waiter_behind(blocking: bool) -> None:
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
                thread = Thread(target=ask)
                thread.start()
                thread.join()
            else:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(receipt, 0.01)
        chunk, _ = receipt.in_chunk()
        assert not chunk.waiters
        assert len(late) == (3 if blocking else 0)
        scene.network.unblock("broker1")
        await receipt

    play(body)
