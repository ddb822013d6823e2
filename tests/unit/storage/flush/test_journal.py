"""Checks that the journal returns every flushed frame, and no frame that was not written to it."""

from uuid import UUID

import pytest

from builders.logs import key
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.storage.flush.journal import Journal, JournalEntry, journal_numbers, read_journal
from millstream.testing.simulated.clock import ManualClock
from millstream.testing.simulated.disk import SimulatedDisk

OWNER = UUID(int=5)
CLOCK = ManualClock()


def entry(number: int, size: int = 10) -> JournalEntry:
    return JournalEntry(
        key=key(number),
        segment_base=100,
        position=number,
        base_offset=100 + number,
        next_offset=101 + number,
        data=bytes([number]) * size,
    )


def written(disk: SimulatedDisk, frames: int) -> list[int]:
    """Write a journal with `count` frames of two entries, and return the end of each frame."""
    disk.make_directory("/data")
    journal = Journal(disk, "/data", OWNER, 7)
    ends = []
    for number in range(frames):
        journal.append([entry(2 * number), entry(2 * number + 1)], CLOCK.monotonic_s)
        ends.append(journal.size_bytes)
    return ends


def read(disk: SimulatedDisk) -> list[int]:
    """Return the numbers of the entries found, and check that each is as it was written."""
    found = list(read_journal(disk, "/data", OWNER, 7))
    for one in found:
        assert one == entry(one.position)
    return [one.position for one in found]


PATH = f"/data/journal-{7:020d}"


def test_all_frames_are_read_back_in_order() -> None:
    disk = SimulatedDisk()
    written(disk, 3)
    disk.power_loss()
    assert read(disk) == [0, 1, 2, 3, 4, 5]


def test_a_torn_frame_at_the_end_of_the_journal_is_ignored() -> None:
    disk = SimulatedDisk()
    second, third = written(disk, 3)[1:]
    for size in range(third - 1, second - 1, -7):
        disk.cut(PATH, size)
        assert read(disk) == [0, 1, 2, 3]


def test_frames_after_a_damaged_frame_are_read() -> None:
    first, second, _ = written(disk := SimulatedDisk(), 3)
    for position in range(first, second):
        was = disk.contents(PATH)[position : position + 1]
        disk.spoil(PATH, position, bytes([was[0] ^ 0xFF]))
        assert read(disk) == [0, 1, 4, 5]
        disk.spoil(PATH, position, was)
    assert read(disk) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("content", [b"", b"MSTRM", bytes(100), b"garbage" * 30])
def test_a_journal_with_an_incomplete_head_is_empty(content: bytes) -> None:
    disk = SimulatedDisk()
    written(disk, 1)
    disk.cut(PATH, 0)
    disk.spoil(PATH, 0, content)
    assert read(disk) == []


def test_frames_left_over_from_another_journal_are_ignored() -> None:
    disk = SimulatedDisk()
    end = written(disk, 1)[0]
    other = Journal(disk, "/data", OWNER, 8)
    for number in range(2):
        other.append([entry(number + 10)], CLOCK.monotonic_s)
    disk.spoil(PATH, end, disk.contents(other.path)[36:])
    assert read(disk) == [0, 1]


def test_a_journal_of_another_directory_is_refused() -> None:
    disk = SimulatedDisk()
    written(disk, 1)
    with pytest.raises(MillstreamError) as refused:
        list(read_journal(disk, "/data", UUID(int=6), 7))
    assert refused.value.code is ErrorCode.DATA_DIRECTORY_MISSING


def test_a_failed_journal_accepts_no_more_frames() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/data")
    journal = Journal(disk, "/data", OWNER, 7)
    disk.is_full = True
    with pytest.raises(OSError, match="no space"):
        journal.append([entry(0)], CLOCK.monotonic_s)
    disk.is_full = False
    with pytest.raises(AssertionError):
        journal.append([entry(0)], CLOCK.monotonic_s)


def test_journal_numbers_are_parsed_from_file_names() -> None:
    names = ["checkpoint", f"journal-{3:020d}", f"journal-{20:020d}", "journal-old", ".lock"]
    assert journal_numbers(names) == [3, 20]
