"""Tests `millstream dump` over the wire and from the files of a real broker."""

import json
import signal
import sqlite3
from pathlib import Path

import pytest

from builders.command import TIMEOUT_S, Command
from millstream.testing.real_broker import RealBroker

SMALL_SEGMENTS = ("--segment-bytes", "16KiB")


def contents(data: Path) -> dict[str, tuple[int, bytes]]:
    """Returns the modification time and the content of every file in a data directory."""
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in data.rglob("*") if path.is_file()}


def test_an_offline_dump_prints_the_same_as_a_dump_from_the_broker(
    broker: RealBroker, millstream: Command, topic: str
) -> None:
    millstream.succeed("topic", "create", topic, "-p", "2")
    millstream.succeed("put", topic, "--key-separator", ":", "--null-value", "-", given=b"a:1\nb:x]y\\z\na:-\nc:\xff\n")
    online = millstream.succeed("dump", topic)
    assert [line.rsplit(b" ", 1)[1] for line in sorted(online.lines)].count(b"[delete]") == 1
    data = str(broker.data_dir)
    assert millstream.succeed("dump", topic, "--offline", data).output == online.output
    for flags in (("--json",), ("--batches", "--partition", "1")):
        assert millstream.succeed("dump", topic, *flags).output == (
            millstream.succeed("dump", topic, "--offline", data, *flags).output
        )
    (there,) = millstream.succeed("dump", topic, "--verify", "--json").documents
    (here,) = millstream.succeed("dump", topic, "--offline", data, "--verify", "--json").documents
    assert sum(row["messages"] for row in there["partitions"]) == 4
    for row in here["partitions"]:
        assert row.pop("segments") in (0, 1)
    assert here == there


def test_an_offline_dump_beside_a_busy_broker_finds_no_problems(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data", extra_args=SMALL_SEGMENTS) as broker:
        millstream = Command(broker.bootstrap)
        millstream.succeed("topic", "create", "busy", "-p", "2")
        with millstream.running("bench", "produce", "-c", "100000000", "--batch", "20", "--topic", "busy") as load:
            while len(millstream.succeed("get", "busy", "--count", "5000").lines) < 5000:
                pass
            for _ in range(3):
                ended = millstream.succeed("dump", "--offline", str(broker.data_dir), "--verify")
                assert all(line.endswith(b"no problems") for line in ended.lines)
            load.send_signal(signal.SIGINT)
            assert load.wait(TIMEOUT_S) == 130


def test_an_offline_dump_finds_no_problems_while_a_log_is_compacted(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data", extra_args=("--cleaner-interval-ms", "50ms")) as broker:
        millstream = Command(broker.bootstrap)
        settings = ("--setting", "segment.bytes=16KiB", "--setting", "min.cleanable.dirty.ratio=0")
        millstream.succeed("topic", "create", "states", "--compact", *settings)
        lines = b"".join(b"key-%d:%d\n" % (number % 7, number) for number in range(6_000))
        millstream.succeed("put", "states", "--key-separator", ":", given=lines)
        data = str(broker.data_dir)
        while True:
            (document,) = millstream.succeed("dump", "states", "--offline", data, "--verify", "--json").documents
            (row,) = document["partitions"]
            assert (row["problems"], row["next_offset"]) == ([], 6_000)
            if row["messages"] < 5_000:
                break
        broker.stop()
        kept = {line.split(b"] [")[5]: line for line in millstream.succeed("dump", "states", "--offline", data).lines}
        assert [kept[b"key-%d" % (number % 7)].split(b"] [")[6] for number in range(5_993, 6_000)] == [
            b"%d" % number for number in range(5_993, 6_000)
        ]


@pytest.mark.parametrize("stop", ["stop", "kill"])
def test_an_offline_dump_reads_a_stopped_brokers_files_without_changing_them(tmp_path: Path, stop: str) -> None:
    with RealBroker(tmp_path / "data", extra_args=SMALL_SEGMENTS) as broker:
        millstream = Command(broker.bootstrap)
        millstream.succeed("put", "logs", given=b"".join(b"line %d\n" % number for number in range(5_000)))
        millstream.succeed("put", "other", "one")
        getattr(broker, stop)()
        before = contents(broker.data_dir)
        ended = millstream.succeed("dump", "logs", "--offline", str(broker.data_dir))
        assert [line.split(b"] [")[6] for line in ended.lines] == [b"line %d" % number for number in range(5_000)]
        verified = millstream.succeed("dump", "--offline", str(broker.data_dir), "--verify").output.decode()
        assert "logs-0: offsets 0 to 4999" in verified
        assert "other-0: offsets 0 to 0" in verified
        assert contents(broker.data_dir) == before


def test_an_offline_dump_shows_topic_ids_when_the_catalog_is_unreadable(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data") as broker:
        millstream = Command(broker.bootstrap)
        (created,) = millstream.succeed("topic", "create", "logs", "--json").documents
        millstream.succeed("put", "logs", "one")
        broker.stop()
        catalog = broker.data_dir / "catalog.sqlite"
        with sqlite3.connect(catalog) as rows:
            assert rows.execute("SELECT name FROM topics").fetchall() == [("logs",)]
        for damage in (lambda: catalog.write_bytes(b"rubbish" * 1000), catalog.unlink):
            damage()
            (line,) = millstream.succeed("dump", "--offline", str(broker.data_dir)).lines
            assert created["id"].encode() in line


def test_a_corrupt_byte_is_reported_as_text_and_as_json(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data") as broker:
        millstream = Command(broker.bootstrap)
        for value in ("one", "two", "three"):
            millstream.succeed("put", "logs", value)
        broker.stop()
        (segment,) = broker.data_dir.glob("*-0/*.log")
        damaged = bytearray(segment.read_bytes())
        damaged[damaged.index(b"two")] ^= 1
        segment.write_bytes(damaged)
        ended = millstream.run("dump", "--offline", str(segment))
        assert ended.code == 7
        assert [line.split(b"] [")[6] for line in ended.lines] == [b"one", b"three"]
        assert f"{segment}, byte " in ended.errors
        assert "the batch of offsets 1 to 1: the batch's CRC-32C is" in ended.errors
        ended = millstream.run("dump", "--offline", str(broker.data_dir), "--verify", "--json")
        assert ended.code == 7
        (problem,) = json.loads(ended.output)["problems"]
        assert problem["place"].startswith(str(segment))


@pytest.mark.parametrize("offline", [False, True])
def test_a_dump_of_a_missing_topic_suggests_a_similar_name(
    broker: RealBroker, millstream: Command, topic: str, offline: bool
) -> None:
    millstream.succeed("topic", "create", topic)
    flags = ("--offline", str(broker.data_dir)) if offline else ()
    ended = millstream.run("dump", topic + "x", *flags)
    assert ended.code == 1
    assert f"did you mean {topic}" in ended.errors
    ended = millstream.run("dump", topic, "--partition", "9", *flags)
    assert (ended.code, ended.output) == (1, b"")
    assert "partition 9" in ended.errors
    assert millstream.succeed("dump", topic, *flags).output == b""
