"""Tests local file reads: their content, interruptions and threads, and answers of an untrusted broker."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from types import FrameType

import pytest

from builders.loops import for_each
from millstream.model.names import TopicPartition
from millstream.records.batch import encode_batch
from millstream.records.header import CorruptBatch
from millstream.sdk.consuming import delivered_buffer
from millstream.sdk.consuming.arrow import as_record_batch, next_record_batch
from millstream.sdk.consuming.delivered_buffer import DeliveredBuffer
from millstream.sdk.feed import fetched_chunk, local_files
from millstream.sdk.feed.fetched_chunk import COLUMNS_BYTES, PIECE_BYTES, FetchedChunk
from millstream.sdk.feed.local_files import MISSES_MAX, MORE_BYTES, FileMovedError, LocalFileReader
from millstream.sdk.feed.partition_feed import PartitionFeed
from millstream.sdk.requests import INFO
from millstream.sdk.responses import FetchedBatches
from millstream.seams import workers
from millstream.seams.file_part import FilePlace

WHERE = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
COUNT = 100
"""The number of messages of each batch."""
READING = {module.__file__ for module in (delivered_buffer, local_files, fetched_chunk, workers)}
"""The source files in which a caller may be interrupted while it reads."""


class Broker:
    """A connection to a broker that supports local file reads."""

    def serves(self, api: object) -> bool:
        return api == INFO


def batches(*sizes: int, compression: str = "none") -> bytes:
    """Encode one batch for each size; all values of a batch have its size."""
    random = Random(1)
    return b"".join(
        encode_batch(
            [random.randbytes(size) for _ in range(COUNT)],
            timestamps=1,
            base_offset=COUNT * number,
            compression=compression,
        )
        for number, size in enumerate(sizes)
    )


def placed(path: Path, position: int = 0, size_bytes: int | None = None) -> FilePlace:
    file = path.stat()
    size_bytes = file.st_size - position if size_bytes is None else size_bytes
    return FilePlace(str(path), file.st_dev, file.st_ino, position, size_bytes)


def unread_chunk(
    place: FilePlace, end: int, *, start: int = 0, stop: int | None = None, near: LocalFileReader | None = None
) -> FetchedChunk:
    feed = PartitionFeed(WHERE, start)
    fetched = FetchedBatches(end, 0, memoryview(b""), place, end)
    near = near or LocalFileReader("here")
    return FetchedChunk.unread(feed, fetched, near, is_packed=False, stop_offset=stop)


def pieces_of(unread: FetchedChunk, piece_bytes: int, read_bytes: int) -> list[FetchedChunk]:
    """Read an unread chunk completely, piece by piece."""
    found: list[FetchedChunk] = []
    rest: FetchedChunk | None = unread
    while rest is not None:
        *read, last = rest.unpacked(piece_bytes=piece_bytes, read_bytes=read_bytes)
        found += read
        rest = None if last.place is None else last
        found += [last] if rest is None else []
    return found


@pytest.mark.parametrize("read_bytes", [70, 5_000, 50_000, 10_000_000])
@pytest.mark.parametrize("piece_bytes", [1, 20_000, 10_000_000])
@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize(("start", "stop"), [(0, None), (0, 1), (150, 350), (99, 101), (700, 701), (300, 300 + COUNT)])
def test_a_file_is_read_completely_with_any_read_and_piece_size(
    tmp_path: Path, compression: str, piece_bytes: int, read_bytes: int, start: int, stop: int | None
) -> None:
    sizes = [10, 100, 1000, 11_000, 1, 2000, 0, 100]
    path = tmp_path / "log"
    stored = batches(*sizes, compression=compression)
    path.write_bytes(b"before" + stored + b"behind")
    first = start // COUNT
    skipped = len(batches(*sizes[:first], compression=compression))
    unread = unread_chunk(placed(path, 6 + skipped, len(stored) - skipped), len(sizes) * COUNT, start=start, stop=stop)
    found = pieces_of(unread, piece_bytes, read_bytes)
    end = len(sizes) * COUNT if stop is None else stop
    assert [message.offset for piece in found for message in piece.open()] == list(range(start, end))
    assert [piece.offset for piece in found] == [start, *(piece.next_offset for piece in found[:-1])]
    assert found[-1].next_offset == end


def test_a_batch_larger_than_the_read_buffer_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(batches(10, 2 * (COLUMNS_BYTES + MORE_BYTES) // COUNT, 10))
    delivered = DeliveredBuffer(reads=True)
    delivered.give([unread_chunk(placed(path), 3 * COUNT)])
    found = []
    while (batch := next_record_batch(delivered)) is not None:
        found += batch.column("offset").to_pylist()
    assert found == list(range(3 * COUNT))
    assert delivered.positions() == {WHERE: 3 * COUNT}


def fifo(path: Path) -> None:
    os.mkfifo(path)


def replaced(path: Path) -> None:
    path.write_bytes(batches(10, 10))


def nothing(path: Path) -> None:
    pass


@pytest.mark.parametrize("put", [nothing, replaced, fifo, Path.mkdir])
def test_a_file_replaced_under_the_same_name_is_not_read(tmp_path: Path, put: Callable[[Path], None]) -> None:
    path = tmp_path / "log"
    path.write_bytes(batches(10, 10))
    unread = unread_chunk(placed(path), 2 * COUNT)
    path.rename(tmp_path / "other")
    put(path)
    with pytest.raises(FileMovedError):
        unread.unpacked(piece_bytes=PIECE_BYTES, read_bytes=PIECE_BYTES)


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/full", "/proc/kmsg", "/proc/self/status", "/", "", "a\0b", "log"])
def test_special_files_named_by_a_broker_are_refused(name: str) -> None:
    try:
        file = os.stat(name)
        place = FilePlace(name, file.st_dev, file.st_ino, 0, 2**31 - 1)
    except (OSError, ValueError):
        place = FilePlace(name, 0, 0, 0, 2**31 - 1)
    with pytest.raises(FileMovedError):
        unread_chunk(place, 10).unpacked(piece_bytes=PIECE_BYTES, read_bytes=PIECE_BYTES)


def test_a_fifo_is_refused_without_blocking(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    with pytest.raises(FileMovedError):
        unread_chunk(placed(path, 0, 100), 10).unpacked(piece_bytes=PIECE_BYTES, read_bytes=PIECE_BYTES)


def shorter(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def other_offsets(path: Path) -> None:
    """Overwrite the file with batches of other offsets, as if its inode and name were reused."""
    path.write_bytes(encode_batch([b"later"] * COUNT, timestamps=1, base_offset=COUNT) + bytes(100_000))


def with_length(length: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        stored = bytearray(path.read_bytes())
        stored[8:12] = length.to_bytes(4, "big", signed=True)
        path.write_bytes(stored)

    return change


@pytest.mark.parametrize(
    "change",
    [shorter, other_offsets, *map(with_length, (-1, -100, 0, 5, 48, 2**31 - 1, 101 * 2**20))],
)
def test_a_changed_file_is_reported_as_moved_and_skips_no_message(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    path = tmp_path / "log"
    path.write_bytes(batches(1000, 1000))
    unread = unread_chunk(placed(path), 2 * COUNT)
    change(path)
    delivered = DeliveredBuffer(reads=True)
    for open_ in (delivered.open, lambda: next_record_batch(delivered)):
        delivered.give([unread])
        assert not open_()
        assert delivered.damage is not None
        assert (delivered.damage[0], type(delivered.damage[1])) == (unread, FileMovedError)
        assert delivered.positions() == {}


def test_a_file_without_the_announced_end_offset_is_reported_as_moved(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(batches(1000, 1000))
    with pytest.raises(FileMovedError):
        unread_chunk(placed(path), 2 * COUNT + 1).unpacked(piece_bytes=PIECE_BYTES, read_bytes=PIECE_BYTES)


def test_local_file_reads_stop_after_several_misses_of_one_partition(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(batches(10))
    there, gone = placed(path), placed(path)._replace(inode=0)
    near = LocalFileReader("here")

    def read(where: TopicPartition, place: FilePlace) -> None:
        near.read(where, place, offset=0, end_offset=COUNT, size_bytes=PIECE_BYTES)

    for attempt in range(2 * MISSES_MAX):
        with pytest.raises(FileMovedError):
            read(WHERE, gone)
        if attempt % (MISSES_MAX - 1) == 0:
            read(WHERE, there)
        assert near.machine(Broker()) == "here"  # type: ignore[arg-type]
    read(WHERE, there)
    for _ in range(MISSES_MAX):
        assert near.machine(Broker()) == "here"  # type: ignore[arg-type]
        read(OTHER, there)
        with pytest.raises(FileMovedError):
            read(WHERE, gone)
    assert near.machine(Broker()) == ""  # type: ignore[arg-type]


@pytest.mark.parametrize("arrow", [False, True])
def test_an_interrupted_file_read_starts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrow: bool) -> None:
    path = tmp_path / "log"
    path.write_bytes(batches(*[20_000] * 4))
    delivered = DeliveredBuffer(reads=True)
    delivered.give([unread_chunk(placed(path), 4 * COUNT)])
    read = local_files._fill
    found: list[int] = []
    fills = 0

    def fill(fd: int, view: memoryview, position: int) -> None:
        nonlocal fills
        fills += 1
        if fills % 3 == 0:
            assert delivered.positions().get(WHERE, 0) == len(found) >= delivered.finished().get(WHERE, 0)
            raise KeyboardInterrupt
        read(fd, view, position)

    monkeypatch.setattr(local_files, "_fill", fill)
    for _ in range(100):
        try:
            if arrow and (batch := next_record_batch(delivered)) is not None:
                found += batch.column("offset").to_pylist()
            elif not arrow and delivered.open():
                found += [message.offset for message in delivered.some_of_one(1_000)]
        except KeyboardInterrupt:
            pass
    assert found == list(range(4 * COUNT))


@pytest.mark.parametrize("raised", [KeyboardInterrupt, TimeoutError, ValueError])
@pytest.mark.parametrize("arrow", [False, True])
def test_a_signal_at_any_call_is_raised_once_and_loses_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrow: bool, raised: type[BaseException]
) -> None:
    monkeypatch.setattr(delivered_buffer, "COLUMNS_BYTES", 30_000)
    monkeypatch.setattr(delivered_buffer, "PIECE_BYTES", 30_000)
    monkeypatch.setattr(local_files, "MORE_BYTES", 10_000)
    path = tmp_path / "log"
    path.write_bytes(batches(*[100] * 9))
    interrupted = 0
    while _interrupted_at_call(placed(path), interrupted, raised, arrow=arrow):
        interrupted += 1
    assert interrupted > 100


def _interrupted_at_call(place: FilePlace, which: int, raised: type[BaseException], *, arrow: bool) -> bool:
    """Read a file with a signal at call number `which`; return false if there are fewer calls."""
    delivered = DeliveredBuffer(reads=True)
    delivered.give([unread_chunk(place, 9 * COUNT)])
    calls = 0

    def signalled(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        if event in ("call", "c_return") and frame.f_code.co_filename in READING:
            calls += 1
            if calls == which + 1:
                raise raised

    def some() -> list[int]:
        delivered.begin()
        if arrow:
            batch = next_record_batch(delivered)
            return [] if batch is None else batch.column("offset").to_pylist()
        return [message.offset for message in delivered.some(1_000)] if delivered.open() else []

    told = 0
    while True:
        position = delivered.positions().get(WHERE, 0)
        found: list[int] | None = None
        sys.setprofile(signalled)
        try:
            found = some()
        except raised:
            told += 1
            sys.setprofile(None)
            delivered.put_back()
            continue
        finally:
            sys.setprofile(None)
        if not found:
            break
        assert found == list(range(position, found[-1] + 1))
    assert position == 9 * COUNT
    assert not len(delivered)
    assert told == (calls > which)
    return told == 1


def test_columns_stay_valid_when_the_read_buffer_is_reused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(batches(*[9_000] * 12))
    delivered = DeliveredBuffer(reads=True)
    delivered.give([unread_chunk(placed(path), 12 * COUNT)])
    found = []
    while (batch := next_record_batch(delivered)) is not None:
        found.append(batch)
    (whole,) = unread_chunk(placed(path), 12 * COUNT).unpacked(piece_bytes=10**8, read_bytes=10**8)
    expected = as_record_batch(whole)
    assert expected is not None
    assert len(found) > 2
    assert [value for each in found for value in each.column("value").to_pylist()] == (
        expected.column("value").to_pylist()
    )


def test_read_ahead_data_is_used_only_for_the_matching_read(tmp_path: Path) -> None:
    paths = [tmp_path / "first", tmp_path / "second"]
    for path, size in zip(paths, (9_000, 7_000), strict=True):
        path.write_bytes(batches(*[size] * 6))
    scratch = local_files.ScratchBuffer(COLUMNS_BYTES)
    near = LocalFileReader("here")

    def read(place: FilePlace) -> tuple[bytes, FilePlace | None]:
        found, rest = near.read(WHERE, place, offset=0, end_offset=0, size_bytes=COLUMNS_BYTES, scratch=scratch)
        return bytes(found), rest

    for path in (*paths, *paths):  # Each read ignores what is being read ahead.
        begun, rest = read(placed(path))
        assert rest is not None
        assert begun == path.read_bytes()[: len(begun)]
    whole, rest = read(placed(paths[0]))
    assert rest is not None
    offset = COUNT * round(6 * len(whole) / placed(paths[0]).size_bytes)
    further = near.read(WHERE, rest, offset=offset, end_offset=offset, size_bytes=COLUMNS_BYTES, scratch=scratch)[0]
    assert whole + bytes(further) == paths[0].read_bytes()[: len(whole) + len(further)]


def test_a_failed_read_ahead_fails_only_the_matching_read(tmp_path: Path) -> None:
    path, other = tmp_path / "log", tmp_path / "other"
    for each in (path, other):
        each.write_bytes(batches(*[9_000] * 6))
    scratch = local_files.ScratchBuffer(COLUMNS_BYTES)
    near = LocalFileReader("here")
    _, rest = near.read(WHERE, placed(path), offset=0, end_offset=0, size_bytes=COLUMNS_BYTES, scratch=scratch)
    assert rest is not None
    gone = rest._replace(inode=rest.inode + 1)
    scratch.begin(gone, COLUMNS_BYTES)
    assert (
        bytes(near.read(WHERE, placed(other), offset=0, end_offset=0, size_bytes=COLUMNS_BYTES, scratch=scratch)[0])
        in other.read_bytes()
    )
    scratch.begin(gone, COLUMNS_BYTES)
    with pytest.raises(FileMovedError):
        near.read(WHERE, gone, offset=COUNT * 2, end_offset=COUNT * 2, size_bytes=COLUMNS_BYTES, scratch=scratch)
    assert (
        bytes(near.read(WHERE, placed(path), offset=0, end_offset=0, size_bytes=COLUMNS_BYTES, scratch=scratch)[0])
        in path.read_bytes()
    )


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, TimeoutError, ValueError])
def test_an_interrupted_read_does_not_share_memory_with_the_reader_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interruption: type[BaseException]
) -> None:
    path, other = tmp_path / "log", tmp_path / "other"
    for each, size in ((path, 9_000), (other, 7_000)):
        each.write_bytes(batches(*[size] * 6))
    goes_on = threading.Lock()
    read = local_files._read

    def late(place: FilePlace, size_bytes: int, scratch: bytearray | None) -> memoryview:
        with goes_on:
            return read(place, size_bytes, scratch)

    def interrupted(event: threading.Event, timeout: float | None = None) -> bool:
        raise interruption

    scratch = local_files.ScratchBuffer(COLUMNS_BYTES)
    with monkeypatch.context() as patched, goes_on:
        patched.setattr(local_files, "_read", late)
        scratch.begin(placed(path), COLUMNS_BYTES)
        patched.setattr(local_files, "_read", read)
        patched.setattr(threading.Event, "wait", interrupted)
        with pytest.raises(interruption):
            scratch.read(placed(other), COLUMNS_BYTES)
    found = scratch.read(placed(other), COLUMNS_BYTES)
    assert bytes(found) == other.read_bytes()[: len(found)]


def test_files_are_read_without_read_ahead_when_no_thread_can_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    path = tmp_path / "log"
    path.write_bytes(batches(*[9_000] * 6))
    delivered = DeliveredBuffer(reads=True)
    delivered.give([unread_chunk(placed(path), 6 * COUNT)])
    found = []
    while (batch := next_record_batch(delivered)) is not None:
        found += batch.column("offset").to_pylist()
    assert found == list(range(6 * COUNT))


def test_a_closed_buffer_releases_its_memory_and_thread(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(batches(*[9_000] * 6))
    delivered = DeliveredBuffer(reads=True)
    delivered.give([unread_chunk(placed(path), 6 * COUNT)])
    before = threading.enumerate()
    assert next_record_batch(delivered) is not None
    (thread,) = (each for each in threading.enumerate() if each not in before)
    delivered.close()
    thread.join(10)
    assert not thread.is_alive()
    assert next_record_batch(delivered) is None
    assert delivered._memory is None


def test_chunks_taken_back_during_a_read_follow_the_callers_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / "first", tmp_path / "second"]
    for path in paths:
        path.write_bytes(batches(*[20_000] * 4))
    first = unread_chunk(placed(paths[0]), 4 * COUNT)
    second = unread_chunk(placed(paths[1]), 4 * COUNT)
    delivered = DeliveredBuffer(reads=True)
    delivered.give([first, second])
    back: list[FetchedChunk] = []
    read = local_files._read

    def interfere(place: FilePlace, size_bytes: int, scratch: bytearray | None) -> memoryview:
        back.extend(delivered.take_back())
        assert delivered.positions() == {}
        assert len(delivered) == 1, "the chunk that is being read still counts"
        return read(place, size_bytes, scratch)

    monkeypatch.setattr(local_files, "_read", interfere)
    assert delivered.open()
    assert back == [second]
    taken = delivered.some_of_one(1)
    rest = delivered.take_back()
    monkeypatch.undo()
    offsets = [message.offset for each in rest for piece in _opened(each) for message in piece.open()]
    assert [message.offset for message in taken] + offsets == list(range(4 * COUNT))
    assert delivered.positions() == {WHERE: 1}


def test_metrics_count_each_message_once_when_chunks_are_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(batches(*[9_000] * 4))
    delivered = DeliveredBuffer(reads=True)
    given = [unread_chunk(placed(path), 4 * COUNT)]
    noted = found = 0
    while given:
        delivered.give(given)
        if delivered.open():
            found += len(delivered.some_of_one(70))
        given = delivered.take_back()
        noted += sum(count for _, count, _ in delivered.opened)
        size_bytes = sum(size for _, _, size in delivered.opened)
        assert size_bytes <= path.stat().st_size
        delivered.opened = []
    assert noted == found == 4 * COUNT


@for_each("seed", range(40))
def test_caller_and_engine_threads_split_the_messages_exactly(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    count = 60 * COUNT
    path = tmp_path / "log"
    path.write_bytes(batches(*[1000] * 60))
    delivered = DeliveredBuffer(reads=True)
    delivered.give([unread_chunk(placed(path), count)])
    found: list[int] = []
    has_begun = threading.Event()

    def call() -> None:
        has_begun.set()
        while delivered.open():
            if random.random() < 0.5:
                left, _ = delivered.each()
                with suppress(IndexError):
                    while True:
                        message = left[0]
                        del left[0]
                        found.append(message.offset)
                continue
            delivered.begin()
            some = [message.offset for message in delivered.some(random.choice([1, 50, 10_000]))]
            if random.random() < 0.3:
                delivered.put_back()
            else:
                found.extend(some)

    caller = threading.Thread(target=call)
    caller.start()
    has_begun.wait()
    for _ in range(seed * 100):
        len(delivered)  # Delays `take_back`.
    back = delivered.take_back()
    caller.join()
    rest = [message.offset for each in back for piece in _opened(each) for message in piece.open()]
    assert found + rest == list(range(count))
    assert delivered.positions().get(WHERE, 0) == len(found)


@pytest.fixture(autouse=True)
def short_turns() -> Iterator[None]:
    """Make threads switch as often as possible."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval_s)


def _opened(each: FetchedChunk) -> list[FetchedChunk]:
    return [each] if each.place is None else pieces_of(each, PIECE_BYTES, PIECE_BYTES)


def test_a_damaged_file_raises_corruption_instead_of_a_moved_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    stored = bytearray(batches(1000, 1000))
    stored[-1] ^= 1
    path.write_bytes(stored)
    delivered = DeliveredBuffer(reads=True)
    delivered.give([unread_chunk(placed(path), 2 * COUNT)])
    assert delivered.open()
    assert len(delivered.one()) == COUNT
    assert not delivered.open()
    assert delivered.damage is not None
    assert isinstance(delivered.damage[1], CorruptBatch)
    assert not isinstance(delivered.damage[1], FileMovedError)
