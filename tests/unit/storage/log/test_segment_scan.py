"""Checks that a header scan reads as little as possible when batches are large."""

import pytest

from builders.batches import batch
from millstream.records.header import HEADER_BYTES, stamp
from millstream.storage.log.segment_scan import CHUNK_BYTES, walk
from millstream.testing.simulated.disk import SimulatedDisk, SimulatedFile

COUNT = 20


class CountedFile(SimulatedFile):
    """Counts the bytes read."""

    bytes_read = 0

    def read(self, size: int, position: int) -> bytes:
        data = super().read(size, position=position)
        self.bytes_read += len(data)
        return data


def stored(size_bytes: int) -> tuple[CountedFile, int]:
    """Create a segment of batches with one record of this size, and return its end."""
    disk = SimulatedDisk()
    plain = disk.open("/segment", create=True)
    end = 0
    for offset in range(COUNT):
        one = batch(b"." * size_bytes)
        stamp(one, base_offset=offset, leader_epoch=0)
        plain.write(one, end)
        end += len(one)
    return CountedFile(disk, "/segment", plain._inode), end


def test_only_the_headers_of_large_batches_are_read() -> None:
    file, end = stored(400_000)
    assert [header.base_offset for _, header in walk(file, position=0, end=end, next_offset=0)] == list(range(COUNT))
    assert file.bytes_read <= CHUNK_BYTES + COUNT * HEADER_BYTES


@pytest.mark.parametrize("verify", [False, True])
def test_small_batches_are_read_in_one_call(verify: bool) -> None:
    file, end = stored(100)
    assert [header.base_offset for _, header in walk(file, position=0, end=end, next_offset=0, verify=verify)] == list(
        range(COUNT)
    )
    assert file.bytes_read == end
