"""Tests the dump of a log over the wire, against an in-memory broker in simulated time."""

import pytest

from builders.sdk.scripted_broker import Scene, play
from millstream.cli.dump.account import BatchPrinter, DumpAccount
from millstream.cli.dump.lines import format_for
from millstream.cli.dump.wire import WireDump
from millstream.cli.positions import Latest, parse_position
from millstream.records.batch import encode_batch
from millstream.records.header import stamp


async def dump(
    scene: Scene,
    *,
    start: str = "beginning",
    end: str | None = None,
    count: int | None = None,
    batches: bool = False,
    verify: bool = False,
) -> list[DumpAccount]:
    printer = BatchPrinter(None if verify else format_for(batches=batches, as_json=False), count)
    wire = WireDump(scene.client(), "t", 30.0, printer, verify=verify)
    last = Latest() if end is None else parse_position(end, "--to", 0)
    spans = await wire.spans([], parse_position(start, "--from", 0), last)
    return [await wire.examine(span) for span in spans]


async def fill(scene: Scene) -> None:
    client = scene.client()
    for number in (0, 2, 4):
        await client.put("t", [b"%d" % number, None], keys=[None, b"k"], timestamps_ms=1000 * number)


def control_batch(offset: int) -> bytes:
    batch = encode_batch([b"\0\0\0\0\0\0"], keys=[b"\0\0\0\1"], timestamps=0, control=True, transactional=True)
    stamp(batch, base_offset=offset, leader_epoch=0)
    return bytes(batch)


@pytest.mark.parametrize(
    ("start", "end", "count", "offsets"),
    [
        ("beginning", None, None, [0, 1, 2, 3, 4, 5]),
        ("3", None, None, [3, 4, 5]),
        ("1", "4", None, [1, 2, 3]),
        ("@2000", None, None, [2, 3, 4, 5]),
        ("beginning", None, 3, [0, 1, 2]),
        ("100", None, None, []),
    ],
)
def test_a_dump_prints_the_requested_range(
    start: str, end: str | None, count: int | None, offsets: list[int], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    async def body(scene: Scene) -> None:
        await fill(scene)
        await dump(scene, start=start, end=end, count=count)

    play(body)
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert [int(line.split("] [")[4]) for line in lines] == offsets


def test_tombstones_and_control_records_are_printed_with_their_action(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    async def body(scene: Scene) -> None:
        await fill(scene)
        scene.cluster.topics["t"][0].batches.append(control_batch(6))
        await dump(scene, start="4")

    play(body)
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert [line.rsplit(" ", 1)[1] for line in lines] == ["[put]", "[delete]", "[commit]"]


def test_batch_headers_are_printed_one_per_line(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    async def body(scene: Scene) -> None:
        await fill(scene)
        await dump(scene, start="3", batches=True)

    play(body)
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert [line.split()[2] for line in lines] == ["base_offset=2", "base_offset=4"]


def test_a_damaged_batch_is_reported_and_the_others_are_printed(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    accounts: list[DumpAccount] = []

    async def body(scene: Scene) -> None:
        await fill(scene)
        log = scene.cluster.topics["t"][0]
        log.batches[1] = log.batches[1][:-1] + b"\xff"
        accounts.extend(await dump(scene))
        accounts.extend(await dump(scene, verify=True))

    play(body)
    assert len(capsysbinary.readouterr().out.splitlines()) == 4
    for account in accounts:
        (problem,) = account.problems
        assert problem.place == "t-0, offsets 2 to 3"
        assert "CRC-32C" in problem.text
    assert (accounts[1].batches, accounts[1].records, accounts[1].next_offset) == (2, 4, 6)


def test_a_response_without_a_valid_batch_ends_the_dump_with_a_problem() -> None:
    async def body(scene: Scene) -> None:
        await fill(scene)
        scene.cluster.topics["t"][0].read = lambda offset: b"\x07" * 200  # type: ignore[method-assign]
        (account,) = await dump(scene, verify=True)
        assert account.batches == 0
        assert "no batch begins at byte 0" in account.problems[0].text

    play(body)


def test_verify_reports_every_partition() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", 3)
        await scene.client().put("t", [b"a"], partition=1)
        accounts = await dump(scene, verify=True)
        assert [account.line() for account in accounts] == [
            "t-0: no messages, 0 batches, 0 records, 0 B: no problems",
            "t-1: offsets 0 to 0, 1 batch, 1 record, 69 B: no problems",
            "t-2: no messages, 0 batches, 0 records, 0 B: no problems",
        ]

    play(body)
