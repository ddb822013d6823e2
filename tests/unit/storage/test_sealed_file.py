"""Checks that a damaged sealed file is rejected."""

import pytest

from millstream.storage import sealed_file, snapshot
from millstream.testing.simulated.disk import SimulatedDisk

KIND = b"TESTKIND"


def test_a_sealed_file_is_read_back_as_written() -> None:
    disk = SimulatedDisk()
    sealed_file.write(disk, "/file", KIND, b"first")
    sealed_file.write(disk, "/file", KIND, b"second, and longer")
    sealed_file.write(disk, "/file", KIND, b"third")
    assert sealed_file.read(disk, "/file", KIND) == b"third"
    assert disk.list("/") == ["file"]
    disk.power_loss()
    assert sealed_file.read(disk, "/file", KIND) == b"third"


def test_a_sealed_file_of_another_kind_is_rejected() -> None:
    disk = SimulatedDisk()
    sealed_file.write(disk, "/file", KIND, b"payload")
    assert sealed_file.read(disk, "/file", b"OTHER---") is None
    assert sealed_file.read(disk, "/absent", KIND) is None


@pytest.mark.parametrize("length", [0, 5, 20, 27, 100])
def test_a_file_of_zeros_is_not_a_sealed_file(length: int) -> None:
    assert sealed_file.unseal(KIND, bytes(length)) is None


def test_every_damaged_or_missing_byte_is_detected() -> None:
    whole = sealed_file.seal(KIND, b"some payload")
    for position in range(len(whole)):
        spoiled = bytearray(whole)
        spoiled[position] ^= 0x40
        assert sealed_file.unseal(KIND, bytes(spoiled)) is None
        assert sealed_file.unseal(KIND, whole[:position]) is None
    assert sealed_file.unseal(KIND, whole + b"\0") is None


def test_a_snapshot_is_read_back_with_offset_and_payload() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/log")
    assert snapshot.load(disk, "/log", "producers") is None
    snapshot.save(disk, "/log", "producers", 42, b"state")
    assert snapshot.load(disk, "/log", "producers") == (42, b"state")
    disk.cut("/log/producers.snapshot", 20)
    assert snapshot.load(disk, "/log", "producers") is None
