"""Tests which part of a topic is read and when a read ends, against an in-memory broker in simulated time."""

import asyncio
from collections.abc import Sequence

import pytest

from builders.sdk.scripted_broker import PartitionLog, Scene, play
from millstream.cli.messages.topic_reads import LOOK_AGAIN_S, Select, TopicRead
from millstream.cli.positions import parse_position
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.records.record import Record


class Page:
    """Collects the messages that are read."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, Record]] = []

    def write(self, partition: int, records: Sequence[Record]) -> None:
        self.rows += [(partition, record) for record in records]

    @property
    def text(self) -> str:
        return "".join((record.value or b"").decode() for _, record in self.rows)


async def read(
    scene: Scene,
    page: Page,
    start: str = "beginning",
    end: str | None = None,
    *,
    partition: int | None = None,
    count: int | None = None,
    follow: bool = False,
    select: Select | None = None,
) -> None:
    first = parse_position(start, "--from", 10_000)
    last = None if end is None else parse_position(end, "--to", 10_000)
    partitions = () if partition is None else (partition,)
    await TopicRead(scene.client(), "t", 30.0, follow=follow).run(partitions, first, last, count, page.write, select)


async def fill(scene: Scene) -> None:
    """Writes six messages, `0` to `5`, with timestamps of 0 s to 5 s, in batches of two."""
    client = scene.client()
    for number in (0, 2, 4):
        values = [b"%d" % number, b"%d" % (number + 1)]
        await client.put("t", values, timestamps_ms=[1000 * number, 1000 * (number + 1)])


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("beginning", None, "012345"),
        ("3", None, "345"),
        ("1", "3", "12"),
        ("latest", None, ""),
        ("beginning", "beginning", ""),
        ("beginning", "latest", "012345"),
        ("@3000", None, "345"),
        ("@1500", "@3500", "23"),
        ("@99999", None, ""),
        ("7s", None, "345"),
        ("100", None, ""),
        ("5", "100", "5"),
    ],
)
def test_a_range_between_two_positions_is_read(start: str, end: str | None, expected: str) -> None:
    async def body(scene: Scene) -> None:
        await fill(scene)
        page = Page()
        await read(scene, page, start, end)
        assert page.text == expected

    play(body)


@pytest.mark.parametrize(("count", "expected"), [(1, "0"), (3, "012"), (6, "012345"), (99, "012345")])
def test_a_read_ends_after_the_requested_number_of_messages(count: int, expected: str) -> None:
    async def body(scene: Scene) -> None:
        await fill(scene)
        page = Page()
        await read(scene, page, count=count)
        assert page.text == expected

    play(body)


def test_a_read_without_follow_ignores_messages_written_meanwhile() -> None:
    async def body(scene: Scene) -> None:
        await fill(scene)
        client = scene.client()

        class Busy(Page):
            def write(self, partition: int, records: Sequence[Record]) -> None:
                super().write(partition, records)
                tasks.append(asyncio.ensure_future(client.put("t", [b"later"])))

        tasks: list[asyncio.Future[object]] = []
        page = Busy()
        await read(scene, page)
        await asyncio.gather(*tasks)
        assert page.text == "012345"

    play(body)


@pytest.mark.parametrize("partitions", [1, 3])
def test_follow_ends_when_the_requested_number_of_messages_is_read(partitions: int) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", partitions)
        page = Page()
        reading = asyncio.ensure_future(read(scene, page, follow=True, count=6))
        client = scene.client()
        for number in range(6):
            await asyncio.sleep(7)
            await client.put("t", [b"%d" % number], partition=number % partitions)
            await asyncio.sleep(1)
            assert page.text == "".join(map(str, range(number + 1)))
        await reading

    play(body)


@pytest.mark.parametrize(("partition", "expected"), [(None, "012"), (0, "0")])
def test_follow_reads_added_partitions_from_their_beginning(partition: int | None, expected: str) -> None:
    async def body(scene: Scene) -> None:
        logs = scene.cluster.topic("t")
        page = Page()
        reading = asyncio.ensure_future(read(scene, page, "latest", follow=True, partition=partition))
        await asyncio.sleep(1)
        client = scene.client()
        await client.put("t", [b"0"])
        logs.append(PartitionLog())
        await asyncio.sleep(LOOK_AGAIN_S)
        await scene.client().put("t", [b"1"], partition=1)
        await asyncio.sleep(2 * LOOK_AGAIN_S)
        await scene.client().put("t", [b"2"], partition=1)
        await asyncio.sleep(1)
        assert page.text == expected
        reading.cancel()

    play(body)


def test_follow_ends_when_the_end_offset_is_reached() -> None:
    async def body(scene: Scene) -> None:
        await fill(scene)
        page = Page()
        reading = asyncio.ensure_future(read(scene, page, "4", "7", follow=True))
        await asyncio.sleep(20)
        assert page.text == "45"
        await scene.client().put("t", [b"6", b"7"])
        await reading
        assert page.text == "456"

    play(body)


def test_partitions_are_read_one_after_the_other() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", 3)
        client = scene.client()
        for number in (2, 0, 1, 2):
            await client.put("t", [b"%d" % number], partition=number)
        page = Page()
        await read(scene, page)
        assert [partition for partition, _ in page.rows] == [0, 1, 2, 2]
        page = Page()
        await read(scene, page, partition=2)
        assert page.text == "22"

    play(body)


@pytest.mark.parametrize("follow", [False, True])
def test_a_failure_of_one_partition_ends_the_read(follow: bool) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", 3)[1].start = 5
        await scene.client().put("t", [b"a"], partition=1)
        with pytest.raises(MillstreamError) as caught:
            await read(scene, Page(), "0", follow=follow)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    play(body)


def test_an_offset_before_the_log_start_is_an_error_with_the_first_offset() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t")[0].start = 5
        await scene.client().put("t", [b"a"])
        with pytest.raises(MillstreamError, match="starts at offset 5"):
            await read(scene, Page(), "2")

    play(body)


def test_only_selected_messages_are_passed_on_and_counted() -> None:
    async def body(scene: Scene) -> None:
        await fill(scene)
        page = Page()
        await read(scene, page, count=2, select=lambda record: record.offset % 2 == 1)
        assert page.text == "13"

    play(body)


def test_requested_partitions_are_read_once_in_the_given_order() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", 4)
        client = scene.client()
        for number in range(4):
            await client.put("t", [b"%d" % number], partition=number)
        page = Page()
        first = parse_position("beginning", "--from", 0)
        await TopicRead(client, "t", 30.0, follow=False).run((3, 1, 3), first, None, None, page.write)
        assert page.text == "31"

    play(body)
