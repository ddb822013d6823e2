"""Batches in files of this machine: what is read there, by whom, and what a broker cannot make a reader do."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from types import FrameType
from uuid import UUID

import pytest

from builders.loops import for_each
from millstream.model.errors import MillstreamError
from millstream.model.names import TopicPartition
from millstream.records.batch import encode_batch
from millstream.sdk.consuming import delivered_buffer, local_files, partition_reader
from millstream.sdk.consuming.arrow import as_record_batch, next_record_batch
from millstream.sdk.consuming.delivered_buffer import DeliveredBuffer
from millstream.sdk.consuming.local_files import MISSES_MAX, MORE_BYTES, FileMovedError, LocalFileReader
from millstream.sdk.consuming.partition_reader import COLUMNS_BYTES, PIECE_BYTES, FetchedChunk, PartitionReader
from millstream.sdk.requests import INFO
from millstream.sdk.responses import FetchedBatches
from millstream.seams import workers
from millstream.seams.file_part import FilePlace

WHERE = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
COUNT = 100
"""Messages of each batch."""
READING = {module.__file__ for module in (delivered_buffer, local_files, partition_reader, workers)}
"""Where a caller may be while it reads."""


class Broker:
    """A connection to a broker of the same kind."""

    def serves(self, api: object) -> bool:
        return api == INFO


def batches(*sizes: int, compression: str = "none") -> bytes:
    """One batch for each size that its values have."""
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


def portion(
    place: FilePlace, end: int, *, start: int = 0, stop: int | None = None, near: LocalFileReader | None = None
) -> FetchedChunk:
    reading = PartitionReader(WHERE, start, start, UUID(int=1), stop)
    fetched = FetchedBatches(end, 0, memoryview(b""), place, end)
    return FetchedChunk.lying(reading, fetched, near or LocalFileReader("here"), is_packed=False)


def pieces_of(lying: FetchedChunk, piece_bytes: int, read_bytes: int) -> list[FetchedChunk]:
    """All of it, read one after the other."""
    found: list[FetchedChunk] = []
    rest: FetchedChunk | None = lying
    while rest is not None:
        *read, last = rest.unpacked(piece_bytes, read_bytes)
        found += read
        rest = None if last.place is None else last
        found += [last] if rest is None else []
    return found


@pytest.mark.parametrize("read_bytes", [70, 5_000, 50_000, 10_000_000])
@pytest.mark.parametrize("piece_bytes", [1, 20_000, 10_000_000])
@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize(("start", "stop"), [(0, None), (0, 1), (150, 350), (99, 101), (700, 701), (300, 300 + COUNT)])
def test_whatever_is_read_at_once_each_message_comes_once_and_in_order(
    tmp_path: Path, compression: str, piece_bytes: int, read_bytes: int, start: int, stop: int | None
) -> None:
    sizes = [10, 100, 1000, 11_000, 1, 2000, 0, 100]
    path = tmp_path / "log"
    stored = batches(*sizes, compression=compression)
    path.write_bytes(b"before" + stored + b"behind")
    first = start // COUNT
    skipped = len(batches(*sizes[:first], compression=compression))
    lying = portion(placed(path, 6 + skipped, len(stored) - skipped), len(sizes) * COUNT, start=start, stop=stop)
    found = pieces_of(lying, piece_bytes, read_bytes)
    end = len(sizes) * COUNT if stop is None else stop
    assert [message.offset for piece in found for message in piece.open()] == list(range(start, end))
    assert [piece.offset for piece in found] == [start, *(piece.next_offset for piece in found[:-1])]
    assert found[-1].next_offset == end


def test_a_batch_larger_than_what_is_read_at_once_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(batches(10, 2 * (COLUMNS_BYTES + MORE_BYTES) // COUNT, 10))
    hand = DeliveredBuffer(reads=True)
    hand.give([portion(placed(path), 3 * COUNT)])
    found = []
    while (batch := next_record_batch(hand)) is not None:
        found += batch.column("offset").to_pylist()
    assert found == list(range(3 * COUNT))
    assert hand.positions() == {WHERE: 3 * COUNT}


def fifo(path: Path) -> None:
    os.mkfifo(path)


def replaced(path: Path) -> None:
    path.write_bytes(batches(10, 10))


def nothing(path: Path) -> None:
    pass


@pytest.mark.parametrize("put", [nothing, replaced, fifo, Path.mkdir])
def test_what_has_the_name_by_now_is_not_read(tmp_path: Path, put: Callable[[Path], None]) -> None:
    path = tmp_path / "log"
    path.write_bytes(batches(10, 10))
    lying = portion(placed(path), 2 * COUNT)
    path.rename(tmp_path / "other")
    put(path)
    with pytest.raises(FileMovedError):
        lying.unpacked(PIECE_BYTES, PIECE_BYTES)


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/full", "/proc/kmsg", "/proc/self/status", "/", "", "a\0b", "log"])
def test_no_name_that_a_broker_tells_is_waited_for_or_read_without_end(name: str) -> None:
    try:
        file = os.stat(name)
        place = FilePlace(name, file.st_dev, file.st_ino, 0, 2**31 - 1)
    except (OSError, ValueError):
        place = FilePlace(name, 0, 0, 0, 2**31 - 1)
    with pytest.raises(FileMovedError):
        portion(place, 10).unpacked(PIECE_BYTES, PIECE_BYTES)


def test_a_fifo_is_neither_opened_nor_waited_for_though_it_is_the_one_that_was_told(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    with pytest.raises(FileMovedError):
        portion(placed(path, 0, 100), 10).unpacked(PIECE_BYTES, PIECE_BYTES)


def shorter(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def other_offsets(path: Path) -> None:
    """As a file with the same number has, that the name was given later."""
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
def test_what_is_not_as_it_was_told_is_asked_for_again_and_not_passed_over(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    path = tmp_path / "log"
    path.write_bytes(batches(1000, 1000))
    lying = portion(placed(path), 2 * COUNT)
    change(path)
    hand = DeliveredBuffer(reads=True)
    for open_ in (hand.open, lambda: next_record_batch(hand)):
        hand.give([lying])
        assert not open_()
        assert hand.damage is not None
        assert (hand.damage[0], type(hand.damage[1])) == (lying, FileMovedError)
        assert hand.positions() == {}


def test_what_ends_before_it_should_is_asked_for_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(batches(1000, 1000))
    with pytest.raises(FileMovedError):
        portion(placed(path), 2 * COUNT + 1).unpacked(PIECE_BYTES, PIECE_BYTES)


def test_who_misses_several_times_in_a_row_in_one_partition_has_everything_sent(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(batches(10))
    there, gone = placed(path), placed(path)._replace(inode=0)
    near = LocalFileReader("here")

    def read(where: TopicPartition, place: FilePlace) -> None:
        near.read(where, place, 0, COUNT, PIECE_BYTES)

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
def test_a_reading_that_is_interrupted_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrow: bool
) -> None:
    path = tmp_path / "log"
    path.write_bytes(batches(*[20_000] * 4))
    hand = DeliveredBuffer(reads=True)
    hand.give([portion(placed(path), 4 * COUNT)])
    read = local_files._fill
    found: list[int] = []
    fills = 0

    def fill(fd: int, view: memoryview, position: int) -> None:
        nonlocal fills
        fills += 1
        if fills % 3 == 0:
            assert hand.positions().get(WHERE, 0) == len(found) >= hand.finished().get(WHERE, 0)
            raise KeyboardInterrupt
        read(fd, view, position)

    monkeypatch.setattr(local_files, "_fill", fill)
    for _ in range(100):
        try:
            if arrow and (batch := next_record_batch(hand)) is not None:
                found += batch.column("offset").to_pylist()
            elif not arrow and hand.open():
                found += [message.offset for message in hand.some_of_one(1_000)]
        except KeyboardInterrupt:
            pass
    assert found == list(range(4 * COUNT))


@pytest.mark.parametrize("raised", [KeyboardInterrupt, TimeoutError, ValueError])
@pytest.mark.parametrize("arrow", [False, True])
def test_wherever_a_signal_interrupts_reading_the_caller_is_told_and_it_goes_on_at_the_position(
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
    """Whether there are so many calls, after one of which a signal was handled, while all of a file is read."""
    hand = DeliveredBuffer(reads=True)
    hand.give([portion(place, 9 * COUNT)])
    calls = 0

    def signalled(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        if event in ("call", "c_return") and frame.f_code.co_filename in READING:
            calls += 1
            if calls == which + 1:
                raise raised

    def some() -> list[int]:
        if arrow:
            batch = next_record_batch(hand)
            return [] if batch is None else batch.column("offset").to_pylist()
        return [message.offset for message in hand.some(1_000)] if hand.open() else []

    told = 0
    while True:
        position = hand.positions().get(WHERE, 0)
        found: list[int] | None = None
        sys.setprofile(signalled)
        try:
            found = some()
        except raised:
            told += 1
            continue
        finally:
            sys.setprofile(None)
        if not found:
            break
        assert found == list(range(position, found[-1] + 1))
    assert position == 9 * COUNT
    assert not len(hand)
    assert told == (calls > which)
    return told == 1


def test_columns_stay_as_they_are_when_more_is_read_into_the_same_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(batches(*[9_000] * 12))
    hand = DeliveredBuffer(reads=True)
    hand.give([portion(placed(path), 12 * COUNT)])
    found = []
    while (batch := next_record_batch(hand)) is not None:
        found.append(batch)
    (whole,) = portion(placed(path), 12 * COUNT).unpacked(10**8, 10**8)
    expected = as_record_batch(whole)
    assert expected is not None
    assert len(found) > 2
    assert [value for each in found for value in each.column("value").to_pylist()] == (
        expected.column("value").to_pylist()
    )


def test_what_was_read_ahead_is_what_is_asked_for_next_or_nothing(tmp_path: Path) -> None:
    paths = [tmp_path / "first", tmp_path / "second"]
    for path, size in zip(paths, (9_000, 7_000), strict=True):
        path.write_bytes(batches(*[size] * 6))
    scratch = local_files.ScratchBuffer(COLUMNS_BYTES)
    near = LocalFileReader("here")

    def read(place: FilePlace) -> tuple[bytes, FilePlace | None]:
        found, rest = near.read(WHERE, place, 0, 0, COLUMNS_BYTES, scratch)
        return bytes(found), rest

    for path in (*paths, *paths):  # Turns away each time from what is being read ahead.
        begun, rest = read(placed(path))
        assert rest is not None
        assert begun == path.read_bytes()[: len(begun)]
    whole, rest = read(placed(paths[0]))
    assert rest is not None
    offset = COUNT * round(6 * len(whole) / placed(paths[0]).size_bytes)
    further = near.read(WHERE, rest, offset, offset, COLUMNS_BYTES, scratch)[0]
    assert whole + bytes(further) == paths[0].read_bytes()[: len(whole) + len(further)]


def test_what_cannot_be_read_ahead_is_missed_by_who_asks_for_it_and_by_nobody_else(tmp_path: Path) -> None:
    path, other = tmp_path / "log", tmp_path / "other"
    for each in (path, other):
        each.write_bytes(batches(*[9_000] * 6))
    scratch = local_files.ScratchBuffer(COLUMNS_BYTES)
    near = LocalFileReader("here")
    _, rest = near.read(WHERE, placed(path), 0, 0, COLUMNS_BYTES, scratch)
    assert rest is not None
    gone = rest._replace(inode=rest.inode + 1)
    scratch.begin(gone, COLUMNS_BYTES)
    assert bytes(near.read(WHERE, placed(other), 0, 0, COLUMNS_BYTES, scratch)[0]) in other.read_bytes()
    scratch.begin(gone, COLUMNS_BYTES)
    with pytest.raises(FileMovedError):
        near.read(WHERE, gone, COUNT * 2, COUNT * 2, COLUMNS_BYTES, scratch)
    assert bytes(near.read(WHERE, placed(path), 0, 0, COLUMNS_BYTES, scratch)[0]) in path.read_bytes()


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, TimeoutError, ValueError])
def test_who_is_interrupted_while_it_waits_for_the_thread_does_not_read_into_the_same_memory(
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


def test_where_no_thread_can_be_had_everything_is_read_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    path = tmp_path / "log"
    path.write_bytes(batches(*[9_000] * 6))
    hand = DeliveredBuffer(reads=True)
    hand.give([portion(placed(path), 6 * COUNT)])
    found = []
    while (batch := next_record_batch(hand)) is not None:
        found += batch.column("offset").to_pylist()
    assert found == list(range(6 * COUNT))


def test_a_hand_that_is_closed_keeps_neither_memory_nor_a_thread(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(batches(*[9_000] * 6))
    hand = DeliveredBuffer(reads=True)
    hand.give([portion(placed(path), 6 * COUNT)])
    before = threading.enumerate()
    assert next_record_batch(hand) is not None
    (thread,) = (each for each in threading.enumerate() if each not in before)
    hand.close()
    thread.join(10)
    assert not thread.is_alive()
    assert next_record_batch(hand) is None
    assert hand._memory is None


def test_what_is_taken_back_while_the_caller_reads_follows_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / "first", tmp_path / "second"]
    for path in paths:
        path.write_bytes(batches(*[20_000] * 4))
    first = portion(placed(paths[0]), 4 * COUNT)
    second = portion(placed(paths[1]), 4 * COUNT)
    hand = DeliveredBuffer(reads=True)
    hand.give([first, second])
    back: list[FetchedChunk] = []
    read = local_files._read

    def interfere(place: FilePlace, size_bytes: int, scratch: bytearray | None) -> memoryview:
        back.extend(hand.take_back())
        assert hand.positions() == {}
        assert len(hand) == 1, "what is being read is still here, to be taken back later"
        return read(place, size_bytes, scratch)

    monkeypatch.setattr(local_files, "_read", interfere)
    assert hand.open()
    assert back == [second]
    taken = hand.some_of_one(1)
    rest = hand.take_back()
    monkeypatch.undo()
    offsets = [message.offset for each in rest for piece in _opened(each) for message in piece.open()]
    assert [message.offset for message in taken] + offsets == list(range(4 * COUNT))
    assert hand.positions() == {WHERE: 1}


def test_each_message_is_noted_once_however_often_it_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(batches(*[9_000] * 4))
    hand = DeliveredBuffer(reads=True)
    given = [portion(placed(path), 4 * COUNT)]
    noted = found = 0
    while given:
        hand.give(given)
        if hand.open():
            found += len(hand.some_of_one(70))
        given = hand.take_back()
        noted += sum(count for _, count, _ in hand.opened)
        size_bytes = sum(size for _, _, size in hand.opened)
        assert size_bytes <= path.stat().st_size
        hand.opened = []
    assert noted == found == 4 * COUNT


@for_each("seed", range(40))
def test_a_caller_and_an_engine_in_two_threads_never_take_the_same_or_leave_any(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    count = 60 * COUNT
    path = tmp_path / "log"
    path.write_bytes(batches(*[1000] * 60))
    hand = DeliveredBuffer(reads=True)
    hand.give([portion(placed(path), count)])
    found: list[int] = []
    has_begun = threading.Event()

    def call() -> None:
        has_begun.set()
        while hand.open():
            if random.random() < 0.5:
                take = hand.taker()
                with suppress(IndexError):
                    while True:
                        found.append(take().offset)
            else:
                found.extend(message.offset for message in hand.some(random.choice([1, 50, 10_000])))

    caller = threading.Thread(target=call)
    caller.start()
    has_begun.wait()
    for _ in range(seed * 100):
        len(hand)  # So much later.
    back = hand.take_back()
    caller.join()
    rest = [message.offset for each in back for piece in _opened(each) for message in piece.open()]
    assert found + rest == list(range(count))
    assert hand.positions().get(WHERE, 0) == len(found)


@pytest.fixture(autouse=True)
def short_turns() -> Iterator[None]:
    """Threads get in each other's way as often as they can."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval_s)


def _opened(each: FetchedChunk) -> list[FetchedChunk]:
    return [each] if each.place is None else pieces_of(each, PIECE_BYTES, PIECE_BYTES)


def test_what_is_damaged_in_a_file_is_damaged_and_not_asked_for_as_if_it_were_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "log"
    stored = bytearray(batches(1000, 1000))
    stored[-1] ^= 1
    path.write_bytes(stored)
    hand = DeliveredBuffer(reads=True)
    hand.give([portion(placed(path), 2 * COUNT)])
    assert not hand.open()
    assert hand.damage is not None
    assert isinstance(hand.damage[1], MillstreamError)
    assert not isinstance(hand.damage[1], FileMovedError)
