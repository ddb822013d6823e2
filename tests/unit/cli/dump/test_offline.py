"""Tests the offline dump of a broker's files: intact, with gaps, torn and damaged."""

import json
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from builders.batches import batch
from builders.logs import append_durably, key, open_store, run
from millstream.cli.app import app
from millstream.cli.dump import offline
from millstream.cli.dump.account import BatchPrinter, DumpAccount, PrintRange
from millstream.cli.dump.lines import DumpPartition
from millstream.cli.dump.offline import LogFiles, examine, find_logs
from millstream.cli.failures import EXIT_DAMAGED
from millstream.model.ids import Offset
from millstream.records.batch import encode_batch, seal
from millstream.records.header import HEADER_BYTES, read_header, stamp
from millstream.seams.local_disk import LocalDisk
from millstream.storage import sealed_file
from millstream.storage.cleaning import segment_exchange
from millstream.storage.log.log_settings import LogSettings
from millstream.storage.log.segment import SegmentState
from millstream.storage.log.sparse_index import SparseIndex

EVERYTHING = PrintRange(0, 2**63 - 1)
SMALL = LogSettings(segment_bytes=2000, segment_ms=-1, retention_ms=-1, index_interval_bytes=128)
VALUES = [b"value %d" % number for number in range(200)]
TOPIC_ID = "00000000000000000000000000000001"
NAME = "00000000-0000-0000-0000-000000000001"
"""Name that is shown for the topic without a catalog: its id."""


@pytest.fixture(autouse=True)
def no_wait_for_a_broker_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "SETTLE_S", 0.0)


def dump(*arguments: str | Path) -> tuple[int, list[str], str]:
    result = CliRunner().invoke(app, ["dump", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout.splitlines(), result.stderr


def stamped(data: bytes | bytearray, offset: int) -> bytearray:
    whole = bytearray(data)
    stamp(whole, base_offset=offset, leader_epoch=0)
    return whole


def three_batches() -> list[bytearray]:
    """Returns batches with the offsets 0 to 5, two records each."""
    return [stamped(batch(b"%d" % n, b"%d" % (n + 1), keys=[b"k", b"l"]), n) for n in (0, 2, 4)]


def empty_batch(offset: int, count: int) -> bytearray:
    """Returns a batch without records, as the cleaner leaves it when it removes all of them."""
    header = read_header(stamped(batch(b"x"), offset))
    return seal(bytearray(HEADER_BYTES), header._replace(last_offset_delta=count - 1, record_count=0))


def write(directory: Path, base: int, batches: Sequence[bytes | bytearray]) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / f"{base:020d}.log"
    path.write_bytes(b"".join(batches))
    return path


def examined(path: Path) -> DumpAccount:
    (log,) = find_logs(path, None, [])
    return examine(log, BatchPrinter(None, None), EVERYTHING, checks=True)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the data directory of a cleanly closed store, with one log of several segments and their indexes."""
    path = tmp_path_factory.mktemp("data")

    async def fill() -> None:
        store = await open_store(LocalDisk(), str(path))
        log = await store.create(key(0), SMALL)
        for number, value in enumerate(VALUES):
            await append_durably(store, log, [value], timestamp=1_000 + number)
        await store.close()

    run(fill())
    return path


def copy_of(data: Path, to: Path) -> Path:
    shutil.copytree(data, to)
    return to


def segments_of(data: Path) -> list[Path]:
    return sorted((data / f"{TOPIC_ID}-0").glob("*.log"))


def test_a_cleanly_closed_store_has_no_problems(data: Path) -> None:
    assert len(segments_of(data)) > 3
    assert list((data / f"{TOPIC_ID}-0").glob("*.index"))
    code, lines, errors = dump("--offline", data, "--verify")
    assert (code, errors) == (0, "")
    (line,) = lines
    assert line.startswith("00000000-0000-0000-0000-000000000001-0: offsets 0 to 199, 200 batches, 200 records")
    assert line.endswith(f"{len(segments_of(data))} segments: no problems")


def test_an_offline_dump_changes_no_file(data: Path) -> None:
    def state() -> dict[str, tuple[bytes | None, int]]:
        return {
            str(path): (path.read_bytes() if path.is_file() else None, path.stat().st_mtime_ns)
            for path in data.rglob("*")
        }

    before = state()
    for flags in ((), ("--verify",), ("--batches",)):
        assert dump("--offline", data, *flags)[0] == 0
    assert state() == before


def test_an_offline_dump_prints_the_requested_range(data: Path) -> None:
    directory = data / f"{TOPIC_ID}-0"
    for path, start in ((data, 0), (directory, 0), (segments_of(data)[1], int(segments_of(data)[1].stem))):
        _, lines, _ = dump("--offline", path)
        assert f"[{start}] [\\N] [value {start}] [put]" in lines[0]
    _, lines, _ = dump("--offline", data, "--from", "50", "--to", "53")
    assert [line.split("] [")[4] for line in lines] == ["50", "51", "52"]
    _, lines, _ = dump("--offline", data, "--from", "50", "--count", "2", "--json")
    assert [json.loads(line)["offset"] for line in lines] == [50, 51]
    _, lines, _ = dump("--offline", data, "--batches", "--from", "198")
    assert [line.split()[2] for line in lines] == ["base_offset=198", "base_offset=199"]
    assert len(dump("--offline", data, "--partition", "0")[1]) == len(VALUES)
    assert len(dump("--offline", data, NAME)[1]) == len(VALUES)


@pytest.mark.parametrize("flags", [(), ("--verify",), ("--batches",), ("--json",)])
@pytest.mark.parametrize("at", ["data directory", "partition", "segment"])
def test_a_missing_topic_or_partition_is_an_error(data: Path, at: str, flags: tuple[str, ...]) -> None:
    directory = data / f"{TOPIC_ID}-0"
    path = {"data directory": data, "partition": directory, "segment": segments_of(data)[0]}[at]
    near = NAME[:-1] + "2"
    for asked, named in (
        ((near,), f"topic '{near}' does not exist in {path}; did you mean {NAME}?"),
        (("another",), f"topic 'another' does not exist in {path}"),
        (("--partition", "0", "--partition", "9"), f"partition 9 does not exist in {path}; the last is 0"),
        ((NAME, "--partition", "9"), f"partition 9 of topic '{NAME}' does not exist in {path}; the last is 0"),
    ):
        code, lines, errors = dump("--offline", path, *asked, *flags)
        assert (code, lines) == (1, [])
        assert named in errors


def test_a_topic_that_only_the_checkpoint_lists_is_reported_as_damaged(data: Path, tmp_path: Path) -> None:
    copy = copy_of(data, tmp_path / "copy")
    shutil.rmtree(copy / f"{TOPIC_ID}-0")
    code, _, errors = dump(NAME, "--offline", copy, "--verify")
    assert code == EXIT_DAMAGED
    assert "bytes were flushed, but only 0 exist" in errors


def test_gaps_and_empty_batches_of_a_compacted_log_are_no_problem(tmp_path: Path) -> None:
    kept = stamped(encode_batch([b"a", b"b"], timestamps=0, offset_deltas=[1, 4]), 0)
    path = write(tmp_path / f"{TOPIC_ID}-0", 0, [kept, empty_batch(5, 10), stamped(batch(b"c"), 15)])
    account = examined(path)
    assert account.problems == []
    assert (account.batches, account.records, account.next_offset) == (3, 3, 16)
    _, lines, _ = dump("--offline", path)
    assert [line.split("] [")[4] for line in lines] == ["1", "4", "15"]
    _, lines, _ = dump("--offline", path, "--batches")
    assert "base_offset=5 last_offset=14 records=0" in lines[1]


def test_any_corrupt_byte_is_reported_and_the_other_batches_are_printed(tmp_path: Path) -> None:
    batches = three_batches()
    whole = b"".join(batches)
    second = len(batches[0])
    unchecked = range(second + 12, second + 16)  # The checksum does not cover the leader epoch.
    for position in range(second, second + len(batches[1])):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        path = write(tmp_path / f"{TOPIC_ID}-0", 0, [damaged])
        account = examined(path)
        assert bool(account.problems) == (position not in unchecked), position
        code, lines, errors = dump("--offline", path)
        offsets = {line.split("] [")[4] for line in lines}
        if account.problems:
            assert offsets >= {"0", "1", "4", "5"}, position
            # A batch with a wrong offset is intact otherwise: only the check for gaps finds it.
            assert code == EXIT_DAMAGED
            assert str(path) in errors


def test_a_torn_tail_is_reported_with_its_position(tmp_path: Path) -> None:
    batches = three_batches()
    whole = b"".join(batches)
    last = len(batches[0]) + len(batches[1])
    for end in range(last + 1, len(whole)):
        path = write(tmp_path / f"{TOPIC_ID}-0", 0, [whole[:end]])
        account = examined(path.parent)
        (problem,) = account.problems
        assert problem.place == f"{path}, byte {last}", end
        assert "torn tail" in problem.text
        assert (account.batches, account.next_offset) == (2, 4)


def test_zeros_after_the_last_batch_are_reported(tmp_path: Path) -> None:
    path = write(tmp_path / f"{TOPIC_ID}-0", 0, [*three_batches(), bytes(500)])
    (problem,) = examined(path).problems
    assert "no valid batch, expected offset 6; no valid batch follows, 500 bytes skipped" in problem.text


def test_garbage_between_batches_is_reported_and_skipped(tmp_path: Path) -> None:
    first, second, third = three_batches()
    path = write(tmp_path / f"{TOPIC_ID}-0", 0, [first, b"\x07" * 100, second, third])
    account = examined(path)
    (problem,) = account.problems
    assert f"the next valid batch begins at byte {len(first) + 100}, 100 bytes skipped" in problem.text
    assert account.batches == 3


@given(rubbish=st.binary(max_size=300), cut=st.integers(0, 300))
def test_examine_accepts_any_bytes_in_a_segment_and_raises_nothing(
    tmp_path_factory: pytest.TempPathFactory, rubbish: bytes, cut: int
) -> None:
    path = write(tmp_path_factory.mktemp("rubbish"), 0, [b"".join(three_batches())[:cut], rubbish])
    account = examine(
        LogFiles(DumpPartition("t", 0), (path,), is_whole=False), BatchPrinter(None, None), EVERYTHING, checks=True
    )
    assert account.batches <= 3
    assert account.problems or account.size_bytes == path.stat().st_size


def test_a_missing_segment_is_reported(data: Path, tmp_path: Path) -> None:
    copy = copy_of(data, tmp_path / "copy")
    gone = segments_of(copy)[1]
    following = segments_of(copy)[2]
    gone.unlink()
    code, _, errors = dump("--offline", copy / f"{TOPIC_ID}-0", "--verify")
    assert code == EXIT_DAMAGED
    assert f"{following}: segment begins at offset {int(following.stem)}, expected {int(gone.stem)}" in errors
    assert f"{int(gone.stem)} to {int(following.stem) - 1} are missing" in errors


@pytest.mark.parametrize("last", [False, True])
def test_a_truncated_segment_with_whole_batches_is_reported_as_missing_bytes(
    data: Path, tmp_path: Path, last: bool
) -> None:
    copy = copy_of(data, tmp_path / "copy")
    victim = segments_of(copy)[-1 if last else 1]
    flushed = victim.stat().st_size
    first = read_header(victim.read_bytes()).size_bytes
    victim.write_bytes(victim.read_bytes()[:first])
    code, lines, errors = dump("--offline", copy, "--verify", "--json")
    assert code == EXIT_DAMAGED
    (document,) = map(json.loads, lines)
    assert {"place": str(victim), "text": f"{flushed} bytes were flushed, but only {first} exist"} in document[
        "problems"
    ]
    assert errors == ""


@pytest.mark.parametrize("damage", ["turned", "lying", "of another"])
def test_an_index_that_contradicts_its_segment_is_reported(data: Path, tmp_path: Path, damage: str) -> None:
    copy = copy_of(data, tmp_path / "copy")
    path = next((copy / f"{TOPIC_ID}-0").glob("*.index"))
    base = int(path.stem)
    if damage == "turned":
        written = bytearray(path.read_bytes())
        written[-1] ^= 1
        path.write_bytes(written)
    else:
        index = SparseIndex(Offset(base if damage == "lying" else base + 1), start=0, interval_bytes=1)
        index.add(Offset(base), position=0, time_before=-1)
        index.add(Offset(base + 5), position=17, time_before=1_000)
        encoded = index.encode(10**9)
        assert encoded
        path.write_bytes(encoded)
    code, _, errors = dump("--offline", copy, "--verify")
    assert code == EXIT_DAMAGED
    if damage == "lying":
        assert f"{path}: index has offset {base + 5} at byte 17, but no batch begins there" in errors
        assert f"{path}: index covers 1000000000 bytes" in errors
    else:
        assert f"{path}: index is damaged or belongs to another segment" in errors
    assert dump("--offline", copy)[0] == 0, "without --verify the index is not read"


@pytest.mark.parametrize("step", ["decided", "renamed", "done"])
def test_dump_counts_a_segment_exchange_as_complete_once_it_is_recorded(tmp_path: Path, step: str) -> None:
    directory = tmp_path / f"{TOPIC_ID}-0"
    write(directory, 0, three_batches())
    old = write(directory, 6, [stamped(batch(b"6", keys=[b"k"]), 6)])
    last = write(directory, 7, [stamped(batch(b"7"), 7)])
    cleaned = write(directory, 0, [empty_batch(0, 6), stamped(batch(b"6", keys=[b"k"]), 6)])
    size = cleaned.stat().st_size
    if step == "decided":
        cleaned.rename(segment_exchange.cleaned_path(str(directory), 0))
        write(directory, 0, three_batches())
    if step == "done":
        old.unlink()
    state = SegmentState(
        base_offset=Offset(0),
        next_offset=Offset(7),
        size_bytes=size,
        max_timestamp=1_000,
        max_timestamp_offset=Offset(6),
        created_ms=0,
    )
    sealed_file.write(
        LocalDisk(), f"{directory}/{segment_exchange.FILE_NAME}", segment_exchange.KIND, struct.pack("<qqqqqq", *state)
    )
    account = examined(directory)
    assert account.problems == []
    assert (account.segments, account.records, account.next_offset) == (2, 2, 8)
    assert last.exists()


def test_a_damaged_checkpoint_is_reported(data: Path, tmp_path: Path) -> None:
    copy = copy_of(data, tmp_path / "copy")
    (copy / "checkpoint").write_bytes(b"rubbish")
    code, _, errors = dump("--offline", copy, "--verify")
    assert code == EXIT_DAMAGED
    assert f"{copy / 'checkpoint'}: checkpoint is damaged" in errors


def test_batch_headers_are_printed_without_decoding_the_records(tmp_path: Path) -> None:
    damaged = three_batches()
    damaged[1][-1] ^= 1
    path = write(tmp_path / f"{TOPIC_ID}-0", 0, damaged)
    code, lines, errors = dump("--offline", path, "--batches")
    assert (code, len(lines), errors) == (0, 3, "")
    code, lines, errors = dump("--offline", path, "--batches", "--verify")
    assert (code, len(lines)) == (EXIT_DAMAGED, 3)
    assert "the batch of offsets 2 to 3: the batch's CRC-32C is" in errors


@pytest.mark.parametrize(
    ("directory", "where"),
    [("orders-7", DumpPartition("orders", 7)), ("a-b-0", DumpPartition("a-b", 0)), ("copy", DumpPartition("copy", 0))],
)
def test_partition_directories_named_by_other_brokers_are_recognised(
    tmp_path: Path, directory: str, where: DumpPartition
) -> None:
    path = write(tmp_path / directory, 0, three_batches())
    assert examined(path).where == examined(path.parent).where == where


def test_a_directory_without_logs_is_refused(tmp_path: Path) -> None:
    code, _, errors = dump("--offline", tmp_path)
    assert code == 2
    assert "is not a data directory" in errors
