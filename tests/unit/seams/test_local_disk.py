"""Checks that the real disk keeps the guarantees of its interface."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from builders.disks import open_files_below
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.seams.local_disk import LocalDisk


@pytest.fixture
def disk() -> LocalDisk:
    return LocalDisk()


@pytest.mark.parametrize("data", [b"abcdef", bytearray(b"abcdef"), memoryview(b"abcdef"), [b"abc", bytearray(b"def")]])
def test_written_bytes_are_read_back(disk: LocalDisk, tmp_path: Path, data: bytes) -> None:
    file = disk.open(f"{tmp_path}/file", create=True)
    file.write(data, 4)
    assert file.size() == 10
    assert file.read(100, position=4) == b"abcdef"
    assert file.read(3, position=5) == b"bcd"
    assert file.read(10, position=10) == b""
    file.flush()
    file.close()


def test_more_buffers_than_one_system_call_accepts_are_all_written(disk: LocalDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/file", create=True)
    parts = [b"%04d" % number for number in range(3000)]
    file.write(parts, 0)
    assert file.read(12_000, position=0) == b"".join(parts)


def test_large_writes_reserve_space_without_growing_the_file(disk: LocalDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/file", create=True)
    part = os.urandom(256 * 1024)
    ahead = []
    for number in range(16):
        file.write(part, number * len(part))
        assert file.size() == (number + 1) * len(part)
        ahead.append(os.stat(f"{tmp_path}/file").st_blocks * 512 - file.size())
    assert max(ahead[:8]) < len(part), "while the file is small there is nothing ahead"
    assert len(part) <= max(ahead) <= file.size() // 8 + 64 * 1024, "then some, and never much"
    assert file.read(len(part), position=7 * len(part)) == part
    file.truncate(len(part))
    file.write(part, len(part))
    assert file.read(3 * len(part), position=0) == part * 2


def test_small_files_and_small_writes_reserve_nothing(disk: LocalDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/file", create=True)
    for number in range(100):
        file.write(bytes(10_000), number * 10_000)
    file.flush()
    assert os.stat(f"{tmp_path}/file").st_blocks * 512 <= file.size() + 64 * 1024


def test_a_short_write_is_completed(disk: LocalDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open(f"{tmp_path}/file", create=True)
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: whole(fd, bytes(data[:3]), position))
    file.write(b"0123456789", 0)
    assert file.read(10, position=0) == b"0123456789"


def test_a_cached_read_returns_all_bytes_or_none(disk: LocalDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/file", create=True)
    file.write(b"x" * 10_000, 0)
    assert file.read_cached(10_000, position=0) in (None, b"x" * 10_000)
    assert file.read_cached(10_001, position=0) is None


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EOPNOTSUPP])
def test_a_cached_read_that_would_wait_returns_none(
    disk: LocalDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    file = disk.open(f"{tmp_path}/file", create=True)
    file.write(b"x", 0)

    def refuse(*_: object) -> int:
        raise OSError(number, "not now")

    monkeypatch.setattr(os, "preadv", refuse)
    assert file.read_cached(1, position=0) is None


def test_make_directory_creates_missing_parents(disk: LocalDisk, tmp_path: Path) -> None:
    disk.make_directory(f"{tmp_path}/a/b/c")
    disk.make_directory(f"{tmp_path}/a/b/c")
    disk.open(f"{tmp_path}/a/b/two", create=True)
    disk.open(f"{tmp_path}/a/b/one", create=True)
    assert disk.list(f"{tmp_path}/a/b") == ["c", "one", "two"]
    disk.rename(f"{tmp_path}/a/b/one", f"{tmp_path}/a/b/two")
    disk.flush_directory(f"{tmp_path}/a/b")
    disk.remove(f"{tmp_path}/a/b/two")
    disk.remove(f"{tmp_path}/a/b/c")
    assert disk.list(f"{tmp_path}/a/b") == []
    assert not disk.exists(f"{tmp_path}/a/b/two")


def test_opening_an_absent_file_without_create_fails(disk: LocalDisk, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(f"{tmp_path}/absent")


def test_a_file_is_closed_with_its_last_reference(disk: LocalDisk, tmp_path: Path) -> None:
    files = [disk.open(f"{tmp_path}/{number}", create=True) for number in range(20)]
    assert open_files_below(tmp_path) == 20
    del files
    assert open_files_below(tmp_path) == 0


def test_a_lock_belongs_to_one_process_and_the_error_names_it(disk: LocalDisk, tmp_path: Path) -> None:
    lock = disk.lock(f"{tmp_path}/.lock")
    try_it = (
        "import sys; from millstream.seams.local_disk import LocalDisk\n"
        "try: LocalDisk().lock(sys.argv[1])\n"
        "except Exception as error: print(error); sys.exit(3)"
    )
    second = subprocess.run(
        [sys.executable, "-c", try_it, f"{tmp_path}/.lock"], capture_output=True, text=True, timeout=60, check=False
    )
    assert second.returncode == 3
    assert "DATA_DIRECTORY_IN_USE" in second.stdout
    assert str(os.getpid()) in second.stdout
    with pytest.raises(MillstreamError) as refused:
        disk.lock(f"{tmp_path}/.lock")
    assert refused.value.code is ErrorCode.DATA_DIRECTORY_IN_USE
    lock.close()
    disk.lock(f"{tmp_path}/.lock").close()


def test_the_free_space_of_a_volume_is_at_most_its_size(disk: LocalDisk, tmp_path: Path) -> None:
    space = disk.space(str(tmp_path))
    assert 0 < space.free_bytes <= space.total_bytes
    with pytest.raises(FileNotFoundError):
        disk.space(f"{tmp_path}/missing")


def test_directories_are_listed_and_flushed_without_free_descriptors(tmp_path: Path) -> None:
    program = (
        "import os, resource, sys\n"
        "from millstream.seams.local_disk import LocalDisk\n"
        "disk = LocalDisk()\n"
        "disk.list(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "held = []\n"
        "try:\n"
        "    while True:\n"
        "        held.append(os.open(os.devnull, os.O_RDONLY))\n"
        "except OSError:\n"
        "    pass\n"
        "for _ in range(20):\n"
        "    disk.flush_directory(sys.argv[1])\n"
        "    print(disk.list(sys.argv[1]))\n"
    )
    (tmp_path / "one").touch()
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("['one']\n" * 20, "")
