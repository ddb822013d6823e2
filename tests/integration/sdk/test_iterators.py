"""Tests iterators, blocking and asyncio, against a real broker."""

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import millstream
from builders.sdk.message_values import values_of

ROOT = Path(__file__).parents[3]
VALUES = [b"%d" % number for number in range(2_000)]


def read_blocking(bootstrap: str, topic: str, count: int) -> list[bytes]:
    values: list[bytes] = []
    with millstream.connect(bootstrap) as client, client.iterators(topic, group=topic, max_messages=300) as iterators:
        for batch in iterators:
            values += values_of(batch.messages)
            if len(values) >= count:
                break
    return values


def read_async(bootstrap: str, topic: str, count: int) -> list[bytes]:
    async def read() -> list[bytes]:
        values: list[bytes] = []
        async with (
            millstream.connect_async(bootstrap) as client,
            client.iterators(topic, group=topic, max_messages=300) as iterators,
        ):
            async for batch in iterators:
                values += values_of(batch.messages)
                if len(values) >= count:
                    break
        return values

    return asyncio.run(read())


@pytest.mark.parametrize("read", [read_blocking, read_async])
def test_a_group_with_iterators_continues_at_its_committed_offset(
    read: Callable[[str, str, int], list[bytes]], millstream_bootstrap: str
) -> None:
    topic = f"iterated-{read.__name__}"
    with millstream.connect(millstream_bootstrap) as client, client.producer() as producer:
        producer.put_many(topic, values=VALUES[:1_500]).result()
        assert read(millstream_bootstrap, topic, 1_500) == VALUES[:1_500]
        producer.put_many(topic, values=VALUES[1_500:]).result()
        assert read(millstream_bootstrap, topic, 500) == VALUES[1_500:]
        where = millstream.TopicPartition(topic, 0)
        assert client.groups.offsets(topic)[where].offset == len(VALUES)


def test_one_client_can_commit_what_another_delivered(millstream_bootstrap: str) -> None:
    topic, names = "delivered", ("delivered", "a")
    with millstream.connect(millstream_bootstrap) as here, millstream.connect(millstream_bootstrap) as there:
        with here.producer() as producer:
            producer.put_many(topic, values=VALUES[:10]).result()
        with here.iterator_calls() as calls:
            calls.join(*names)
            with suppress(millstream.MillstreamError):
                calls.get(*names, topic, 0)  # It may take a moment until the partition is the client's.
            while not calls.heartbeat(*names).owned:
                pass
            batch = calls.read(calls.get(*names, topic, 0))
            calls.deliver(*names, batch, 7)
        with there.iterator_calls() as calls:
            (listed,) = calls.list(*names)
            assert listed.iterator is not None
            assert calls.commit(*names, listed.iterator).position == 7
            calls.leave(*names)


def test_the_example_in_iterators_md_runs(millstream_bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "iterators.md").read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert example
    with millstream.connect(millstream_bootstrap) as client, client.producer() as producer:
        producer.put_many("iterated-orders", values=[b"first", b"last"]).result()
    exec(example[1].replace("localhost:9092", millstream_bootstrap).replace('"orders"', '"iterated-orders"'), {})
    assert capsys.readouterr().out == "0 0 b'first'\n0 1 b'last'\n"
