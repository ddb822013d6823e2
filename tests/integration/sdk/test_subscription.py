"""Tests subscriptions, blocking and asyncio, against a real broker."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import millstream
from builders.sdk.message_values import values_of

ROOT = Path(__file__).parents[3]
VALUES = [b"%d" % number for number in range(3_000)]


def fill(bootstrap: str, topic: str, values: list[bytes]) -> None:
    with millstream.connect(bootstrap) as client, client.producer(batch_count=100) as producer:
        producer.put_many(topic, values, partition=0).result()


def read_blocking(bootstrap: str, topic: str, count: int) -> list[bytes]:
    with (
        millstream.connect(bootstrap) as client,
        client.subscription(topic, start="beginning", group=topic, window_messages=500) as subscription,
    ):
        values = []
        for message in subscription:
            values += values_of([message])
            if len(values) == count:
                break
        return values


def read_async(bootstrap: str, topic: str, count: int) -> list[bytes]:
    async def read() -> list[bytes]:
        async with (
            millstream.connect_async(bootstrap) as client,
            client.subscription(topic, start="beginning", group=topic, window_messages=500) as subscription,
        ):
            values: list[bytes] = []
            async for batch in subscription.batches():
                values += values_of(batch.messages)
                if len(values) >= count:
                    break
            return values

    return asyncio.run(read())


@pytest.mark.parametrize("read", [read_blocking, read_async])
def test_a_subscription_receives_written_messages(
    read: Callable[[str, str, int], list[bytes]], millstream_bootstrap: str
) -> None:
    topic = read.__name__
    fill(millstream_bootstrap, topic, VALUES)
    assert read(millstream_bootstrap, topic, len(VALUES)) == VALUES
    fill(millstream_bootstrap, topic, [b"more"])
    assert read(millstream_bootstrap, topic, 1) == [b"more"], "its group goes on where it was"


def test_the_example_in_push_md_runs(millstream_bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "push.md").read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert example
    fill(millstream_bootstrap, "orders", [b"first", b"last"])
    exec(example[1].replace("localhost:9092", millstream_bootstrap), {})
    assert capsys.readouterr().out == "0 0 b'first'\n0 1 b'last'\n"
