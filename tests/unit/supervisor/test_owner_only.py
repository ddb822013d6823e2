"""Tests that only the broker's user may read data directories, the catalog and clusters' directories."""

import asyncio
import os
import stat
from pathlib import Path

import pytest

from millstream.catalog.sqlite import SqliteCatalog
from millstream.process.control_protocol import NewCluster
from millstream.seams.clock import SystemClock
from millstream.seams.entropy import SystemEntropy
from millstream.seams.local_disk import LocalDisk
from millstream.seams.workers import ThreadWorkers
from millstream.storage.recovery.directory_identity import FILE_NAME
from millstream.supervisor.clusters.stored_clusters import ClusterFiles
from millstream.supervisor.owner_only import restrict


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def open_umask() -> object:
    before = os.umask(0)
    yield
    os.umask(before)


def test_new_data_directories_and_files_belong_to_their_owner_alone(tmp_path: Path) -> None:
    disk = LocalDisk()
    disk.make_directory(str(tmp_path / "data" / "orders-0"))
    disk.open(str(tmp_path / "data" / "file"), create=True)
    disk.lock(str(tmp_path / "data" / "lock"))
    assert mode(tmp_path / "data") == mode(tmp_path / "data" / "orders-0") == 0o700
    assert mode(tmp_path / "data" / "file") == mode(tmp_path / "data" / "lock") == 0o600


@pytest.mark.parametrize("is_old", [False, True])
def test_the_catalog_and_the_files_beside_it_belong_to_their_owner_alone(tmp_path: Path, is_old: bool) -> None:
    path = tmp_path / "data" / "catalog.sqlite"

    async def story() -> None:
        workers = ThreadWorkers(1, "catalog")
        for number in range(2):
            catalog = SqliteCatalog(path, workers=workers, clock=SystemClock(), entropy=SystemEntropy())
            await catalog.open()
            found = {each.name: mode(each) for each in path.parent.iterdir()}
            assert set(found) >= {"catalog.sqlite", "catalog.sqlite-wal", "catalog.sqlite-shm", "catalog.sqlite.lock"}
            assert set(found.values()) == {0o600}
            await catalog.close()
            if is_old and not number:
                for each in path.parent.iterdir():
                    each.chmod(0o644)
        workers.close()

    asyncio.run(story())
    assert mode(path.parent) == 0o700


def test_an_existing_data_directory_is_restricted_at_the_start(tmp_path: Path) -> None:
    for name in ("own", "empty"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o755)
    (tmp_path / "own" / FILE_NAME).write_bytes(b"id")
    restrict([str(tmp_path / name) for name in ("own", "empty", "missing")])
    assert mode(tmp_path / "own") == 0o700
    assert mode(tmp_path / "empty") == 0o755


def test_a_data_directory_of_another_user_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"id")
    tmp_path.chmod(0o750)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    restrict([str(tmp_path)])
    assert mode(tmp_path) == 0o750


def test_directories_of_a_new_cluster_belong_to_their_owner_alone(tmp_path: Path) -> None:
    ClusterFiles(tmp_path / "clusters").begin(NewCluster("orders", log_directories=("disk",)))
    for each in ("clusters", "clusters/orders", "clusters/orders/disk"):
        assert mode(tmp_path / each) == 0o700
