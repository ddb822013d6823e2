"""Tests that invalid settings and arguments are refused at once, with their names."""

import inspect
import re
from collections.abc import Callable
from datetime import timedelta
from operator import attrgetter
from typing import Any

import pytest

import millstream
from builders.sdk.feeds import EvenEntropy
from builders.sdk.scripted_broker import Scene, play
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.admin.admin_results import ResourceKind
from millstream.sdk.consuming.options import ConsumerOptions
from millstream.sdk.iterating import options as iterating
from millstream.sdk.iterating.options import IteratorOptions
from millstream.sdk.producing.options import ProducerBaseOptions
from millstream.sdk.subscribing import options as subscribing
from millstream.sdk.subscribing.options import SubscriptionOptions
from millstream.sdk.time_arguments import Times
from millstream.sdk.watching.read_result import WatchLimits
from millstream.testing.simulated.clock import SimulatedClock


def connect(scene: Scene) -> Any:
    return millstream.connect_async(
        "broker1:9092", network=scene.network.host("client"), clock=SimulatedClock(scene.loop)
    )


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("linger", -1),
        ("linger", "soon"),
        ("room_timeout", -1),
        ("timeout", -1),
        ("compression", None),
        ("compression", 3),
        ("compression", "brotli"),
        ("batch_bytes", "1 lot"),
        ("batch_count", None),
        ("max_bytes", 0),
        ("acks", "all"),
        ("acks", True),
        ("acks", 1.0),
        ("batch_bytes", True),
        ("batch_bytes", 2**70),
        ("batch_count", 2**70),
        ("max_bytes", 2**70),
        ("group", 5),
        ("compression_level", 1),
        ("compression_level", True),
    ],
)
def test_an_invalid_producer_setting_is_named(name: str, wrong: Any) -> None:
    async def body(scene: Scene) -> None:
        async with connect(scene) as client:
            with pytest.raises(
                MillstreamError, match=f'INVALID_SETTING: {name}(={wrong!r}|: "{wrong}" is not a (duration|size))'
            ):
                client.producer(**{name: wrong})

    play(body)


def test_sizes_accept_texts_with_units() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t")
        async with connect(scene) as client, client.producer(max_bytes="1 MiB", batch_bytes="2kB") as producer:
            assert producer.max_bytes == 2**20
            await producer.put("t", b"v" * 100)
            await producer.room("1 KiB")
            async with client.consumer("t", prefetch_bytes="1MiB", start="beginning") as consumer:
                assert len(await consumer.get("t", 0, 0, max_bytes="1KiB")) == 1
        times, entropy = Times(SimulatedClock(scene.loop)), EvenEntropy()
        assert subscribing.engine_settings(times, ["t"], {"window_bytes": "64KiB"}).window.size_bytes == 65_536
        assert iterating.engine_settings(times, entropy, "g", ["t"], {"max_bytes": "1MB"}).max_bytes == 1_000_000
        assert WatchLimits.checked(messages=1, size_bytes="1.5MiB").size_bytes == 1_572_864

    play(body)


@pytest.mark.parametrize(
    ("kind", "option"),
    [("consumer", "prefetch_bytes"), ("subscription", "window_bytes"), ("iterators", "max_bytes")],
)
@pytest.mark.parametrize("wrong", ["8 elephants", "none", "-1", 1.5, True, 2**70])
def test_an_invalid_size_is_refused_by_name(kind: str, option: str, wrong: Any) -> None:
    async def body(scene: Scene) -> None:
        async with connect(scene) as client:
            options = {"group": "g"} if kind == "iterators" else {}
            with pytest.raises(MillstreamError, match=f"INVALID_SETTING: {option}[=:]"):
                getattr(client, kind)("t", **options, **{option: wrong})

    play(body)


@pytest.mark.parametrize("wrong", [5, "x", object])
def test_a_metrics_object_without_the_methods_is_refused(wrong: Any) -> None:
    async def body(scene: Scene) -> None:
        with pytest.raises(MillstreamError, match="INVALID_SETTING: metrics="):
            await millstream.connect_async("broker1:9092", network=scene.network.host("client"), metrics=wrong)

    play(body)


@pytest.mark.parametrize("settings", [{"retention.ms": "soon"}, {"retention.ms": None}, {5: "x"}])
def test_bad_settings_of_topics_are_invalid_config(settings: Any) -> None:
    async def body(scene: Scene) -> None:
        async with connect(scene) as client:
            for refused in (
                client.create_topic("t", settings=settings),
                client.admin.alter_settings(ResourceKind.TOPIC, "t", settings),
            ):
                with pytest.raises(MillstreamError, match="is not ") as caught:
                    await refused
                assert caught.value.code is ErrorCode.INVALID_CONFIG

    play(body)


@pytest.mark.parametrize("kind", ["consumer", "subscription", "iterators"])
@pytest.mark.parametrize("wrong", [None, 5, b"t", ["t", None]])
def test_an_invalid_topic_name_is_refused(kind: str, wrong: Any) -> None:
    async def body(scene: Scene) -> None:
        async with connect(scene) as client:
            options = {"group": "g"} if kind == "iterators" else {}
            with pytest.raises(MillstreamError, match=re.escape(f"INVALID_SETTING: topics={wrong!r}: ")):
                getattr(client, kind)(wrong, **options)

    play(body)


@pytest.mark.parametrize("name", ["on_assigned", "on_revoked", "on_lost", "on_health"])
def test_a_consumer_callback_that_is_not_callable_is_refused(name: str) -> None:
    async def body(scene: Scene) -> None:
        async with connect(scene) as client:
            with pytest.raises(MillstreamError, match=f"INVALID_SETTING: {name}=5: it must be a function"):
                client.consumer("t", **{name: 5})

    play(body)


def test_an_async_callback_is_refused_where_it_would_not_be_awaited() -> None:
    async def notice(*told: object) -> None: ...

    async def body(scene: Scene) -> None:
        async with connect(scene) as client:
            await client.create_topic("t")
            async with client.producer() as producer:
                receipt = producer.put("t", b"v")
                for refused in (
                    lambda: client.consumer("t", on_health=notice),
                    lambda: receipt.add_done_callback(notice),
                    lambda: millstream.connect("broker1:9092", on_clock_drift=notice),
                ):
                    with pytest.raises(MillstreamError, match="it must be a function without async"):
                        refused()

    play(body)


@pytest.mark.parametrize("wrong", [-1, "finish", True, 1e300, timedelta.max, timedelta.min, {"a": 1}, {0: -1}, {-1: 0}])
def test_an_invalid_start_position_is_refused(wrong: Any) -> None:
    async def body(scene: Scene) -> None:
        async with connect(scene) as client:
            for kind in ("consumer", "subscription"):
                with pytest.raises(MillstreamError, match=r"INVALID_SETTING: start[=:]"):
                    getattr(client, kind)("t", start=wrong)

    play(body)


@pytest.mark.parametrize("given", [10**12, 1_763_555_000_000, 4_999_999_999_999])
def test_a_position_that_looks_like_milliseconds_is_refused_with_a_hint(given: int) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t")
        async with connect(scene) as client:
            looks = (
                f"{given} looks like a time in milliseconds, and an int is an offset; for a time give {given / 1000}"
            )
            for option in ("start", "stop"):
                with pytest.raises(MillstreamError, match=re.escape(f"INVALID_SETTING: {option}: {looks}")):
                    client.consumer("t", **{option: given})
            with pytest.raises(MillstreamError, match=re.escape(f"INVALID_SETTING: start: {looks}")):
                client.subscription("t", start=given)
            with pytest.raises(MillstreamError, match=re.escape(f"INVALID_SETTING: to: {looks}")):
                await client.consumer("t").seek(given)
            with pytest.raises(MillstreamError, match=re.escape(f"INVALID_SETTING: offset: {looks}")):
                await client.read("t", 0, given)

    play(body)


@pytest.mark.parametrize("given", [10**12 - 1, 5 * 10**12, {0: 1_763_555_000_000}])
def test_other_large_offsets_are_accepted_as_positions(given: Any) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t")
        async with connect(scene) as client:
            client.consumer("t", start=given)

    play(body)


@pytest.mark.parametrize("wrong", [-1, 0, "5", None])
def test_a_poll_for_less_than_one_message_is_refused(wrong: Any) -> None:
    async def body(scene: Scene) -> None:
        async with connect(scene) as client:
            with pytest.raises(MillstreamError, match=f"INVALID_SETTING: max_messages={wrong!r}: "):
                await client.consumer("t").poll(0, wrong)

    play(body)


@pytest.mark.parametrize("wrong", [-1, "5", None, True])
def test_a_commit_of_an_invalid_offset_is_refused(wrong: Any) -> None:
    async def body(scene: Scene) -> None:
        async with connect(scene) as client:
            for reader in (client.consumer("t", group="g"), client.subscription("t", group="g")):
                with pytest.raises(MillstreamError, match=f"INVALID_SETTING: offset of t-0={wrong!r}: "):
                    await reader.commit({("t", 0): wrong})

    play(body)


TOPICS: tuple[Any, ...] = (5, b"t", [5], [b"t"], "\ud800", ["t" * 10_000])
NAMES: tuple[Any, ...] = (5, None, b"n", ["n"], "\ud800", "n" * 10_000)
NUMBERS: tuple[Any, ...] = ("5", None, 1.5, True, [5], 2**70)
SIZES: tuple[Any, ...] = ("a lot", None, 1.5, True, [5], 2**70)
PLACES: tuple[Any, ...] = (5, "t", {"t": 0}, {("t",): 0}, {("t", "0"): 0}, {("t", -1): 0}, {(5, 0): 0}, {None: 0})
LISTED: tuple[Any, ...] = (5, "t", [5], ["t"], [("t",)], [("t", "0")], [(5, 0)])

QUESTIONS: dict[str, tuple[dict[str, Any], dict[str, tuple[Any, ...]]]] = {
    "metadata": ({}, {"topics": TOPICS}),
    "service_map": ({}, {"topics": TOPICS}),
    "backup_map": ({}, {"topics": TOPICS}),
    "info": ({}, {"node_id": ("1", 1.5, [1], -1)}),
    "describe_topic": ({}, {"name": NAMES}),
    "delete_topic": ({}, {"name": NAMES}),
    "create_topic": (
        {"name": "t"},
        {"name": NAMES, "partitions": NUMBERS, "replication_factor": NUMBERS, "settings": (5, "x", [5])},
    ),
    "offsets": ({}, {"positions": (*PLACES, {("t", 0): "here"}, {("t", 0): None})}),
    "read": ({"topic": "t", "partition": 0, "offset": 0}, {"topic": NAMES, "partition": NUMBERS, "offset": (None, -1)}),
    "read_any": ({}, {"positions": (*PLACES, {("t", 0): "here"}, {("t", 0): None})}),
    "admin.describe_settings": ({"kind": "topic", "name": "t"}, {"kind": NAMES, "name": NAMES, "names": TOPICS}),
    "admin.alter_settings": ({"kind": "topic", "name": "t"}, {"name": NAMES, "chosen": (5, "x"), "unset": TOPICS}),
    "admin.create_partitions": ({"topic": "t", "total": 2}, {"topic": NAMES, "total": (*NUMBERS, 0)}),
    "admin.delete_records": ({}, {"offsets": (*PLACES, {("t", 0): -2}, {("t", 0): None})}),
    "admin.list_topics": ({}, {"limit": (*NUMBERS, 0), "after": (5, b"t", "\ud800")}),
    "admin.topic_sizes": ({}, {"topics": (5, None, "t", ["t"])}),
    "admin.partition_sizes": ({}, {"topic": (5, None, "t")}),
    "admin.describe_log_dirs": ({}, {"topics": (5, "t", ["t"], {5: [0]}, {"t": 0}, {"t": ["0"]})}),
    "admin.query": ({"sql": "SELECT 1"}, {"sql": (5, None, b"x", "\ud800", "x" * 40_000), "rows_max": NUMBERS}),
    "groups.list": ({}, {"states": (*TOPICS, None), "kinds": (*TOPICS, None)}),
    "groups.describe": ({}, {"group_id": NAMES}),
    "groups.offsets": ({"group_id": "g"}, {"group_id": NAMES, "partitions": LISTED}),
    "groups.commit": ({"group_id": "g", "offsets": {}}, {"group_id": NAMES, "offsets": (*PLACES, {("t", 0): "0"})}),
    "groups.delete_offsets": ({"group_id": "g", "partitions": []}, {"group_id": NAMES, "partitions": LISTED}),
    "groups.delete": ({}, {"group_id": NAMES}),
}
WRONG = (
    ErrorCode.INVALID_SETTING,
    ErrorCode.INVALID_TOPIC,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.INVALID_PARTITIONS,
    ErrorCode.INVALID_REPLICATION_FACTOR,
)


@pytest.mark.parametrize("question", QUESTIONS)
def test_client_methods_refuse_invalid_arguments_before_a_request(question: str) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t")
        right, by_name = QUESTIONS[question]
        async with connect(scene) as client:
            ask = attrgetter(question)(client)
            for name, wrong in by_name.items():
                for each in wrong:
                    with pytest.raises(MillstreamError) as caught:
                        await ask(**right | {name: each})
                    assert caught.value.code in WRONG, f"{name}={each!r}: {caught.value}"

    play(body)


READER_CALLS: dict[str, tuple[dict[str, Any], dict[str, tuple[Any, ...]]]] = {
    "get": (
        {"topic": "t", "partition": 0, "offset": 0},
        {"topic": NAMES, "partition": NUMBERS, "offset": NUMBERS, "max_bytes": SIZES, "max_messages": ("5", -1)},
    ),
    "commit": ({}, {"what": (5, "t", {"t": 0}, {("t", 0): "0"}), "metadata": (5, None, "x" * 40_000)}),
    "seek": ({}, {"to": (None, "here", [5], -1)}),
}


@pytest.mark.parametrize("call", READER_CALLS)
def test_consumer_methods_refuse_invalid_arguments(call: str) -> None:
    async def body(scene: Scene) -> None:
        right, by_name = READER_CALLS[call]
        async with connect(scene) as client:
            consumer = client.consumer("t", group="g")
            for name, wrong in by_name.items():
                for each in wrong:
                    with pytest.raises(MillstreamError) as caught:
                        await getattr(consumer, call)(**right | {name: each})
                    assert caught.value.code in WRONG, f"{name}={each!r}: {caught.value}"
            no_places: list[Any] = [("t",), ([],), (("t",),), (("t", "0"),)]
            for places in no_places:
                with pytest.raises(MillstreamError, match="INVALID_"):
                    await consumer.pause(*places)
            nowhere: list[Any] = [([], 0), ("t", [])]
            for place in nowhere:
                with pytest.raises(MillstreamError, match="INVALID_"):
                    consumer.position(*place)

    play(body)


@pytest.mark.parametrize("wrong", [5, None, "x", object()])
def test_iterator_methods_refuse_values_that_are_not_iterators(wrong: Any) -> None:
    async def body(scene: Scene) -> None:
        async with connect(scene) as client:
            calls, iterators = client.iterator_calls(), client.iterators("t", group="g")
            for refused in (
                calls.read(wrong),
                calls.deliver("g", "c", wrong),
                calls.commit("g", "c", wrong),
                iterators.read(wrong),
                iterators.commit(wrong),
            ):
                with pytest.raises(MillstreamError, match=r"INVALID_SETTING: (iterator|batch)="):
                    await refused

    play(body)


@pytest.mark.parametrize("wrong", ["x", None, 1.5, float("nan"), -1, True])
def test_room_refuses_an_invalid_size(wrong: Any) -> None:
    async def body(scene: Scene) -> None:
        async with connect(scene) as client:
            with pytest.raises(MillstreamError, match=r"INVALID_SETTING: size_bytes[=:]"):
                await client.producer().room(wrong)

    play(body)


@pytest.mark.parametrize("wrong", [5, "x", []])
def test_a_producer_callback_that_is_not_callable_is_refused(wrong: Any) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t")
        async with connect(scene) as client, client.producer() as producer:
            receipts = producer.put_many("t", [b"v"])
            takers: list[Callable[[], object]] = [
                lambda: producer.put("t", b"v", on_done=wrong),
                lambda: producer.put_many("t", [b"v"], on_done=wrong),
                lambda: receipts.add_done_callback(wrong),
                lambda: receipts[0].add_done_callback(wrong),
            ]
            for refused in takers:
                with pytest.raises(MillstreamError, match=r"INVALID_SETTING: (on_done|callback)="):
                    refused()
            assert len(receipts) == 1

    play(body)


def test_a_single_topic_name_is_not_split_into_letters() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("orders")
        async with connect(scene) as client:
            assert list((await client.metadata("orders")).topics) == ["orders"]

    play(body)


@pytest.mark.parametrize("facade", [millstream.Client, millstream.AsyncClient])
def test_signatures_name_every_option_with_its_default(facade: type) -> None:
    for name, options in (
        ("consumer", ConsumerOptions),
        ("subscription", SubscriptionOptions),
        ("iterators", IteratorOptions),
        ("producer", ProducerBaseOptions),
    ):
        method = getattr(facade, name)
        parameters = inspect.signature(method).parameters
        shown = {each for each, parameter in parameters.items() if parameter.kind is inspect.Parameter.KEYWORD_ONLY}
        assert {*options.__annotations__} <= shown
        assert all(parameter.kind is not inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
        for each in shown:
            assert f"`{each}`" in method.__doc__, f"{name} does not describe {each}"
