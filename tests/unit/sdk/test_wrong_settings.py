"""What cannot be a setting is refused at once, by the name under which it was given."""

import re
from typing import Any

import pytest

import penstock
from builders.scripted_broker import Scene, play
from penstock.model.errors import ErrorCode, PenstockError
from penstock.sdk.admin_answers import ResourceKind
from penstock.testing.simulated_clock import SimulatedClock


def connect(scene: Scene) -> Any:
    return penstock.connect_async(
        "broker1:9092", network=scene.network.host("client"), clock=SimulatedClock(scene.loop)
    )


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("linger", -1),
        ("linger", "5 ms"),
        ("room_timeout", -1),
        ("timeout", -1),
        ("compression", None),
        ("compression", 3),
        ("compression", "brotli"),
        ("batch_bytes", "1 MB"),
        ("batch_count", None),
        ("max_bytes", 0),
        ("acks", "all"),
    ],
)
def test_a_producer_names_the_setting_that_is_wrong(name: str, wrong: Any) -> None:
    async def body(scene: Scene) -> None:
        async with connect(scene) as client:
            with pytest.raises(PenstockError, match=f"INVALID_SETTING: {name}={wrong!r}: "):
                client.producer(**{name: wrong})

    play(body)


@pytest.mark.parametrize("settings", [{"retention.ms": 5}, {"retention.ms": None}, {5: "x"}])
def test_settings_of_topics_are_text(settings: Any) -> None:
    async def body(scene: Scene) -> None:
        async with connect(scene) as client:
            for refused in (
                client.create_topic("t", settings=settings),
                client.admin.alter_settings(ResourceKind.TOPIC, "t", settings),
            ):
                with pytest.raises(PenstockError, match="names and values must be str") as caught:
                    await refused
                assert caught.value.code is ErrorCode.INVALID_SETTING

    play(body)


@pytest.mark.parametrize("kind", ["consumer", "subscription", "iterators"])
@pytest.mark.parametrize("wrong", [None, 5, b"t", ["t", None]])
def test_what_is_no_name_of_a_topic_is_refused(kind: str, wrong: Any) -> None:
    async def body(scene: Scene) -> None:
        async with connect(scene) as client:
            options = {"group": "g"} if kind == "iterators" else {}
            with pytest.raises(PenstockError, match=re.escape(f"INVALID_SETTING: topics={wrong!r}: ")):
                getattr(client, kind)(wrong, **options)

    play(body)


@pytest.mark.parametrize("name", ["on_assigned", "on_revoked", "on_lost", "on_health"])
def test_what_cannot_be_called_is_no_callback(name: str) -> None:
    async def body(scene: Scene) -> None:
        async with connect(scene) as client:
            with pytest.raises(PenstockError, match=f"INVALID_SETTING: {name}=5: a function is expected"):
                client.consumer("t", **{name: 5})

    play(body)


@pytest.mark.parametrize("wrong", [-1, 0, "5", None])
def test_a_poll_is_for_at_least_one_message(wrong: Any) -> None:
    async def body(scene: Scene) -> None:
        async with connect(scene) as client:
            with pytest.raises(PenstockError, match=f"INVALID_SETTING: max_messages={wrong!r}: "):
                await client.consumer("t").poll(0, wrong)

    play(body)


@pytest.mark.parametrize("wrong", [-1, "5", None, True])
def test_what_is_no_offset_is_not_committed(wrong: Any) -> None:
    async def body(scene: Scene) -> None:
        async with connect(scene) as client:
            for reader in (client.consumer("t", group="g"), client.subscription("t", group="g")):
                with pytest.raises(PenstockError, match=f"INVALID_SETTING: offset of t-0={wrong!r}: "):
                    await reader.commit({("t", 0): wrong})

    play(body)


def test_the_name_of_a_topic_is_not_taken_for_its_letters() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("orders")
        async with connect(scene) as client:
            assert list((await client.metadata("orders")).topics) == ["orders"]

    play(body)
