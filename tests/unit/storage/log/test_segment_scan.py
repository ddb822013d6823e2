"""Walking along headers reads what it needs, and no more where batches are large."""

import pytest

from builders.batches import batch
from millstream.records.header import HEADER_BYTES, stamp
from millstream.storage.log.segment_scan import CHUNK_BYTES, walk
from millstream.testing.simulated.disk import SimulatedDisk, SimulatedFile

COUNT = 20


class CountedFile(SimulatedFile):
    """Counts what is read."""

    bytes_read = 0

    def read(self, size: int, position: int) -> bytes:
        data = super().read(size, position)
        self.bytes_read += len(data)
        return data


def stored(size_bytes: int) -> tuple[CountedFile, int]:
    """A segment of batches of one record of this size, and where it ends."""
    disk = SimulatedDisk()
    plain = disk.open("/segment", create=True)
    end = 0
    for offset in range(COUNT):
        one = batch(b"." * size_bytes)
        stamp(one, 0, offset, 0)
        plain.write(one, end)
        end += len(one)
    return CountedFile(disk, "/segment", plain._inode), end


def test_of_large_batches_only_the_headers_are_read() -> None:
    file, end = stored(400_000)
    assert [header.base_offset for _, header in walk(file, 0, end, 0)] == list(range(COUNT))
    assert file.bytes_read <= CHUNK_BYTES + COUNT * HEADER_BYTES


@pytest.mark.parametrize("verify", [False, True])
def test_of_small_batches_many_are_read_at_once(verify: bool) -> None:
    file, end = stored(100)
    assert [header.base_offset for _, header in walk(file, 0, end, 0, verify=verify)] == list(range(COUNT))
    assert file.bytes_read == end
