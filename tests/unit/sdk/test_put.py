"""A put stores each message once, whatever happens to requests and answers, and says what it knows when it fails."""

import asyncio
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.scripted_broker import Cut, Fault, PartitionLog, Refuse, Scene, Silence, play
from penstock.model.errors import ErrorCode
from penstock.sdk.partitioner import partition_for
from penstock.sdk.producer import Rows
from penstock.sdk.putting import Place, PutError, batch_bounds


async def put_fails(operation: object) -> PutError:
    with pytest.raises(PutError) as caught:
        await operation  # type: ignore[misc]  # any awaitable will do
    return caught.value


RETRIED: list[Fault] = [
    Cut(after=False),
    Cut(after=True),
    Silence(),
    Refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER),
    Refuse(ErrorCode.KAFKA_STORAGE_ERROR),
    Refuse(ErrorCode.REQUEST_TIMED_OUT),
]


@pytest.mark.parametrize("fault", RETRIED)
def test_a_retry_stores_nothing_twice(fault: Fault) -> None:
    async def body(scene: Scene) -> None:
        client = scene.client(request_timeout_s=2.0)
        await client.put("t", [b"a"])
        scene.cluster.then("Produce", fault, fault)
        places = await client.put("t", [b"b", b"c"])
        await client.put("t", [b"d"])
        assert places == [Place("t", 0, 1), Place("t", 0, 2)]
        assert scene.cluster.topics["t"][0].values == [b"a", b"b", b"c", b"d"]

    play(body)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.sampled_from(RETRIED), max_size=4), min_size=1, max_size=6))
def test_order_and_number_are_kept_under_any_mix_of_faults(script: list[list[Fault]]) -> None:
    async def body(scene: Scene) -> None:
        client = scene.client(request_timeout_s=1.0)
        expected: list[bytes | None] = []
        for number, faults in enumerate(script):
            scene.cluster.then("Produce", *faults)
            values = [b"%d-%d" % (number, each) for each in range(number % 3 + 1)]
            places = await client.put("t", values, timeout_s=120)
            assert [place.offset for place in places] == list(range(len(expected), len(expected) + len(values)))
            expected += values
        assert scene.cluster.topics["t"][0].values == expected

    play(body)


@pytest.mark.parametrize("stored", [False, True])
def test_a_put_that_nobody_answers_for_has_an_unknown_outcome_and_does_not_swallow_the_next(stored: bool) -> None:
    async def body(scene: Scene) -> None:
        client = scene.client(request_timeout_s=2.0)
        await client.put("t", [b"a"])
        scene.cluster.then("Produce", *[Cut(after=stored)] * 100)
        error = await put_fails(client.put("t", [b"b"], timeout_s=5))
        assert error.outcome_unknown
        assert error.places == (None,)
        assert "not known whether" in error.detail
        scene.cluster.faults.clear()
        await client.put("t", [b"c"])
        expected = [b"a", b"b", b"c"] if stored else [b"a", b"c"]
        assert scene.cluster.topics["t"][0].values == expected

    play(body)


def test_a_cancelled_put_does_not_swallow_the_next() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        await client.put("t", [b"a"])
        scene.cluster.then("Produce", Silence())
        task = asyncio.ensure_future(client.put("t", [b"lost"]))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        scene.network.cut("broker1")
        await client.put("t", [b"b"])
        assert scene.cluster.topics["t"][0].values == [b"a", b"b"]

    play(body)


def test_a_refusal_is_final_and_known() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        await client.put("t", [b"a"])
        scene.cluster.then("Produce", Refuse(ErrorCode.INVALID_RECORD))
        error = await put_fails(client.put("t", [b"b"]))
        assert error.code is ErrorCode.INVALID_RECORD
        assert not error.outcome_unknown
        await client.put("t", [b"c"])
        assert scene.cluster.topics["t"][0].values == [b"a", b"c"]

    play(body)


def test_a_refusal_after_a_lost_answer_leaves_the_outcome_unknown() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        scene.cluster.then("Produce", Cut(after=True), Refuse(ErrorCode.INVALID_RECORD))
        error = await put_fails(client.put("t", [b"a"]))
        assert error.outcome_unknown

    play(body)


@pytest.mark.parametrize(("lost", "name"), [(0, "KAFKA_STORAGE_ERROR"), (1, "REQUEST_TIMED_OUT")])
def test_a_disk_error_until_the_deadline_is_told_as_what_it_is(lost: int, name: str) -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        await client.put("t", [b"a"])
        scene.cluster.then("Produce", *[Cut(after=True)] * lost, *[Refuse(ErrorCode.KAFKA_STORAGE_ERROR)] * 100)
        error = await put_fails(client.put("t", [b"b"], timeout_s=3))
        assert error.outcome_unknown
        assert error.code.name == name
        assert "not known whether" in error.detail
        assert ErrorCode.KAFKA_STORAGE_ERROR.meaning in error.detail
        assert ("the broker's disk refused it" in error.detail) == (not lost)

    play(body)


@pytest.mark.parametrize("last", [Refuse(ErrorCode.NOT_ENOUGH_REPLICAS), Silence()])
def test_a_refusal_until_the_deadline_is_named_although_the_last_attempt_was_not_answered(last: Fault) -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        await client.put("t", [b"a"])
        scene.cluster.then("Produce", *[Refuse(ErrorCode.NOT_ENOUGH_REPLICAS)] * 3, *[last] * 100)
        error = await put_fails(client.put("t", [b"b"], timeout_s=3))
        assert error.outcome_unknown == (last == Silence())
        assert ErrorCode.NOT_ENOUGH_REPLICAS.meaning in error.detail

    play(body)


@pytest.mark.parametrize(
    "code",
    [ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH],
)
def test_a_forgotten_producer_gets_a_new_identity(code: ErrorCode) -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        await client.put("t", [b"a"])
        scene.cluster.then("Produce", Refuse(code))
        assert (await client.put("t", [b"b"]))[0].offset == 1
        assert len(scene.cluster.requests("InitProducerId")) == 2

    play(body)


def test_a_forgotten_producer_in_doubt_is_not_sent_again() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        scene.cluster.then("Produce", Cut(after=True), Refuse(ErrorCode.UNKNOWN_PRODUCER_ID))
        error = await put_fails(client.put("t", [b"a"]))
        assert error.outcome_unknown
        assert scene.cluster.topics["t"][0].values == [b"a"]

    play(body)


def test_a_copy_whose_place_is_forgotten_counts_as_stored() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        scene.cluster.then("Produce", Cut(after=True), Refuse(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
        assert await client.put("t", [b"a"]) == [Place("t", 0, -1)]

    play(body)


@pytest.mark.parametrize("acks", [0, 1])
def test_weaker_acknowledgements_are_never_sent_twice(acks: int) -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        places = await client.put("t", [b"a"], acks=acks)
        assert places == [Place("t", 0, 0 if acks else -1)]
        assert scene.cluster.requests("InitProducerId") == []
        await client.list_topics()  # Its answer comes after everything before it was done, also what is not answered.
        scene.cluster.then("Produce", Cut(after=True))
        if acks:
            error = await put_fails(client.put("t", [b"b"], acks=acks))
            assert error.outcome_unknown
        else:
            await client.put("t", [b"b"], acks=acks)
        await client.list_topics()
        assert scene.cluster.topics["t"][0].values == [b"a", b"b"]

    play(body)


def test_keys_decide_the_partition_and_the_rest_takes_turns() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        logs = scene.cluster.topic("t", 4)
        keys = [b"key-%d" % number for number in range(20)]
        places = await client.put("t", keys, keys=keys)
        assert [place.partition for place in places] == [partition_for(key, 4) for key in keys]
        turns = [(await client.put("t", [b"x", b"y"])) for _ in range(8)]
        assert all(first.partition == second.partition for first, second in turns)
        chosen = [first.partition for first, _ in turns]
        assert sorted(chosen[:4]) == [0, 1, 2, 3]
        assert chosen[:4] == chosen[4:]
        assert sum(len(log.values) for log in logs) == 36

    play(body)


def test_a_put_says_which_of_its_messages_are_stored() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        logs = scene.cluster.topic("t", 2)
        keys = [b"key-%d" % number for number in range(10)]
        await client.put("t", [b"warm"], partition=0)
        await client.put("t", [b"warm"], partition=1)
        logs[1].producers.clear()  # The next batch there is out of order, and stays so under every identity.
        scene.cluster.then("InitProducerId", *[Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)] * 5)
        error = await put_fails(client.put("t", keys, keys=keys))
        stored = [place is not None for place in error.places]
        assert stored == [partition_for(key, 2) == 0 for key in keys]
        assert not error.outcome_unknown

    play(body)


def test_many_messages_go_in_batches_and_keep_their_order() -> None:
    async def body(scene: Scene) -> None:
        values = [bytes([number % 256]) * 50_000 for number in range(40)]
        places = await scene.client().put("t", values)
        assert [place.offset for place in places] == list(range(40))
        log = scene.cluster.topics["t"][0]
        assert log.values == values
        assert len(log.batches) > 1

    play(body)


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE])
def test_a_batch_the_topic_finds_too_large_is_halved(code: ErrorCode) -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        refuse = Refuse(code)
        await client.put("t", [b"first"])
        scene.cluster.then("Produce", refuse, refuse)
        places = await client.put("t", [b"%d" % number for number in range(8)])
        assert [place.offset for place in places] == list(range(1, 9))
        assert len(scene.cluster.topics["t"][0].batches) == 4

    play(body)


def test_a_message_that_is_too_large_by_itself_is_refused() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.then("Produce", Refuse(ErrorCode.MESSAGE_TOO_LARGE))
        error = await put_fails(scene.client().put("t", [b"x"]))
        assert error.code is ErrorCode.MESSAGE_TOO_LARGE

    play(body)


def test_puts_side_by_side_to_one_partition_are_all_stored_once() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client(request_timeout_s=2.0)
        chance = Random(5)
        scene.cluster.then("Produce", *[chance.choice(RETRIED) for _ in range(20)])
        await asyncio.gather(*[client.put("t", [b"%d" % number], timeout_s=300) for number in range(30)])
        assert sorted(scene.cluster.topics["t"][0].values, key=str) == sorted((b"%d" % n for n in range(30)), key=str)

    play(body)


def test_sequence_numbers_begin_anew_where_they_would_become_negative() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        await client.put("t", [b"a"])
        log: PartitionLog = scene.cluster.topics["t"][0]
        ((where, line),) = client._producer._lines.items()
        producer_id = line.identity.producer_id if line.identity else -1
        line.next_sequence = 2**31 - 2
        log.producers[producer_id] = [(2**31 - 3, 1, 0)]
        await client.put("t", [b"b", b"c"])
        await client.put("t", [b"d"])
        assert log.values == [b"a", b"b", b"c", b"d"]
        assert (where.partition, line.next_sequence) == (0, 1)

    play(body)


def test_nothing_is_put_without_messages() -> None:
    async def body(scene: Scene) -> None:
        assert await scene.client().put("t", []) == []
        assert scene.cluster.seen == []

    play(body)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=50), st.integers(50, 500))
def test_batches_cover_all_messages_and_stay_below_their_bound(sizes: list[int], bound: int) -> None:
    rows = Rows([b"x" * size for size in sizes], None, None, 0)
    bounds = batch_bounds(rows, bound)
    assert [index for start, end in bounds for index in range(start, end)] == list(range(len(sizes)))
    for start, end in bounds:
        assert end - start == 1 or sum(size + 32 for size in sizes[start:end]) <= bound


def test_a_put_whose_turn_does_not_come_in_time_is_known_not_to_be_stored() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client(request_timeout_s=5.0)
        await client.put("t", [b"a"])
        scene.cluster.then("Produce", Silence())
        first = asyncio.ensure_future(client.put("t", [b"b"]))
        await asyncio.sleep(0.1)
        error = await put_fails(client.put("t", [b"c"], timeout_s=1))
        assert error.code is ErrorCode.REQUEST_TIMED_OUT
        assert not error.outcome_unknown
        await first
        assert scene.cluster.topics["t"][0].values == [b"a", b"b"]

    play(body)


@pytest.mark.parametrize("columns", [{"keys": [b"k"]}, {"headers": [[]]}, {"timestamps_ms": [1, 2, 3]}])
def test_columns_of_different_length_are_refused_before_anything_is_sent(columns: dict[str, Any]) -> None:
    async def body(scene: Scene) -> None:
        with pytest.raises(ValueError, match="there are 2 values but"):
            await scene.client().put("t", [b"a", b"b"], **columns)
        assert scene.cluster.seen == []

    play(body)
