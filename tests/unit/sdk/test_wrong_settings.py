"""What cannot be a setting is refused at once, by the name under which it was given."""

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
