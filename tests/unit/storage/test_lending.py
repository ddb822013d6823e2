"""Checks that file parts contain the bytes that a read would return."""

import os
from pathlib import Path
from typing import cast

import pytest

from builders.logs import append_durably, key, open_store, run
from millstream.model.ids import Offset
from millstream.records.header import each_batch
from millstream.seams.file_part import PART_BYTES_MIN
from millstream.seams.local_disk import LocalDisk
from millstream.seams.local_file_part import LocalPart
from millstream.storage.log.log import Log
from millstream.storage.log.log_settings import LogSettings
from millstream.storage.store import LogStore

BATCHES = 60
SETTINGS = LogSettings(segment_bytes=400_000, segment_ms=-1, retention_ms=-1)


@pytest.fixture
def cached_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size up to which parts count as cached, whatever the kernel reports."""
    limit = [10**9]
    monkeypatch.setattr(LocalPart, "is_cached", lambda part: len(part) <= limit[0])
    return limit


async def filled(path: Path) -> tuple[LogStore, Log]:
    """Create a log of two segments with batches of ten messages and 10 kB."""
    store = await open_store(LocalDisk(), str(path / "data"))
    log = await store.create(key(0), SETTINGS)
    for number in range(BATCHES):
        await append_durably(store, log, [b"%01000d" % (10 * number + n) for n in range(10)])
    assert len(log.segments) == 2
    return store, log


@pytest.mark.parametrize("offset", [0, 5, 10, 333])
@pytest.mark.parametrize("end_offset", [400, 599, 600])
@pytest.mark.parametrize(("max_bytes", "part_bytes"), [(100_000, None), (20_000, 70_000), (20_000, 320_000)])
def test_a_file_part_has_whole_batches_within_its_limits(
    tmp_path: Path, cached_bytes: list[int], offset: int, end_offset: int, max_bytes: int, part_bytes: int | None
) -> None:
    async def check() -> None:
        store, log = await filled(tmp_path)
        found = log.reader.read(
            Offset(offset), max_bytes=max_bytes, end_offset=Offset(end_offset), part_bytes=part_bytes or max_bytes
        )
        assert found is not None
        part, next_offset = found
        data = part.read(len(part)) if isinstance(part, LocalPart) else cast(bytes, part)
        headers = [header for _, header in each_batch(data)]
        assert sum(header.size_bytes for header in headers) == len(data) == len(part)
        limit = (part_bytes or max_bytes) if isinstance(part, LocalPart) else max_bytes
        assert 0 < len(data) <= limit
        assert headers[0].base_offset == offset - offset % 10
        assert headers[-1].base_offset + headers[-1].last_offset_delta + 1 == next_offset <= end_offset
        if isinstance(part, LocalPart):
            assert len(data) >= PART_BYTES_MIN
            place = part.place()
            assert place is not None
            file = os.stat(place.path)
            assert (place.device, place.inode, place.size_bytes) == (file.st_dev, file.st_ino, len(part))
        await store.close()

    run(check())


@pytest.mark.parametrize(
    ("cached", "size_bytes"), [(10**9, 320_000), (100_000, 100_000), (1_000, 100_000), (200_000, 100_000)]
)
def test_a_read_returns_a_smaller_file_part_or_bytes_when_not_all_is_cached(
    tmp_path: Path, cached_bytes: list[int], cached: int, size_bytes: int
) -> None:
    async def check() -> None:
        store, log = await filled(tmp_path)
        cached_bytes[0] = cached
        found = log.reader.read(Offset(0), max_bytes=100_000, end_offset=log.end_offset, part_bytes=320_000)
        assert found is not None
        assert size_bytes - 11_000 < len(found[0]) <= size_bytes
        assert isinstance(found[0], LocalPart) == (cached >= PART_BYTES_MIN)
        await store.close()

    run(check())


def test_the_location_of_a_file_part_has_the_current_file_name(tmp_path: Path, cached_bytes: list[int]) -> None:
    path = tmp_path / "log"
    file = LocalDisk().open(str(path), create=True)
    file.write(b"x" * 100, 0)
    part = file.part(50, position=20)
    assert part is not None
    path.rename(tmp_path / "renamed")
    place = part.behind(10).place()
    assert place is not None
    assert (place.path, place.position, place.size_bytes) == (str(tmp_path / "renamed"), 30, 40)
    (tmp_path / "renamed").unlink()
    assert part.place() is None
    file.close()
    assert part.place() is None


def test_a_file_name_that_is_not_utf8_gives_no_location(tmp_path: Path, cached_bytes: list[int]) -> None:
    directory = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(directory)
    file = LocalDisk().open(os.fsdecode(directory + b"/log"), create=True)
    file.write(b"x" * 100, 0)
    part = file.part(50, position=20)
    assert part is not None
    assert part.place() is None
    file.close()
