"""Tests that finished clusters are read back from disk and unfinished ones are removed."""

from pathlib import Path

import pytest

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.process.control_protocol import NewCluster
from millstream.supervisor.clusters.name_checks import FILE_NAME
from millstream.supervisor.clusters.stored_clusters import ClusterFiles, StoredCluster

ORDERS = NewCluster("orders", brokers=2, log_directories=("disk",))


def refused(files: ClusterFiles, new: NewCluster) -> ErrorCode:
    with pytest.raises(MillstreamError) as problem:
        files.check(new)
    return problem.value.code


def test_a_finished_cluster_is_read_back(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path / "clusters")
    places = files.check(ORDERS)
    files.begin(ORDERS)
    home = tmp_path / "clusters" / "orders"
    assert places == [home / "disk" / "broker-1", home / "disk" / "broker-2"]
    made = StoredCluster(asked=ORDERS, ports=(1, 2), is_made=True, is_stopped=True)
    files.remember(made)
    assert ClusterFiles(tmp_path / "clusters").read() == [made]
    assert refused(files, ORDERS) is ErrorCode.CLUSTER_EXISTS


def test_an_unfinished_cluster_is_removed(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path / "clusters")
    (first, _) = files.check(ORDERS)
    files.begin(ORDERS)
    first.mkdir()
    (first / "journal").write_text("something")
    assert ClusterFiles(tmp_path / "clusters").read() == []
    assert [*(tmp_path / "clusters").iterdir()] == []
    files.begin(ORDERS)


def test_deleting_a_cluster_keeps_other_files_in_its_directory(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path / "clusters")
    home = tmp_path / "clusters" / "orders"
    (home / "disk").mkdir(parents=True)
    (home / "disk" / "notes").write_text("kept")
    files.begin(ORDERS)
    for place in files.places(ORDERS):
        place.mkdir()
    files.forget(ORDERS)
    assert [path.name for path in home.rglob("*") if path.is_file()] == ["notes"]
    assert not (home / "disk" / "broker-1").exists()


def test_a_new_cluster_does_not_take_over_existing_data(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path / "clusters")
    (tmp_path / "clusters" / "orders" / "disk" / "broker-2").mkdir(parents=True)
    assert refused(files, ORDERS) is ErrorCode.INVALID_CLUSTER
    assert not (tmp_path / "clusters" / "orders" / FILE_NAME).exists()


def test_an_unreadable_cluster_file_does_not_affect_other_clusters(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path / "clusters")
    files.begin(ORDERS)
    files.remember(StoredCluster(asked=ORDERS, ports=(1, 2), is_made=True))
    damaged = tmp_path / "clusters" / "damaged"
    damaged.mkdir()
    (damaged / FILE_NAME).write_text("{")
    assert [each.asked.name for each in files.read()] == ["orders"]
    assert (damaged / FILE_NAME).exists()


def test_a_cluster_that_cannot_be_removed_does_not_affect_other_clusters(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path / "clusters")
    unfinished = NewCluster("unfinished", brokers=1, log_directories=("logs",))
    files.begin(unfinished)
    (tmp_path / "clusters" / "unfinished" / "logs").rmdir()
    (tmp_path / "clusters" / "unfinished" / "logs").write_text("a file in the way")
    made = StoredCluster(asked=NewCluster("orders", brokers=1), ports=(4711,), is_made=True)
    files.begin(made.asked)
    files.remember(made)
    assert files.read() == [made]


@pytest.mark.parametrize(("moved", "ports"), [("odd", (4711,)), ("copied", (4711, 4712))])
def test_a_cluster_file_that_contradicts_itself_or_its_path_is_kept_and_ignored(
    tmp_path: Path, moved: str, ports: tuple[int, ...]
) -> None:
    files = ClusterFiles(tmp_path / "clusters")
    odd = StoredCluster(asked=NewCluster("odd", brokers=2), ports=ports, is_made=True)
    files.begin(odd.asked)
    files.remember(odd)
    (tmp_path / "clusters" / "odd").rename(tmp_path / "clusters" / moved)
    assert files.read() == []
    assert (tmp_path / "clusters" / moved / FILE_NAME).exists()


LONG = NewCluster("orders", brokers=1, log_directories=("d" * 300,))


def test_a_failed_creation_leaves_no_trace_when_a_name_is_too_long_for_the_disk(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path / "clusters")
    with pytest.raises(OSError, match="File name too long"):
        files.begin(LONG)
    files.forget(LONG)
    assert [*(tmp_path / "clusters").iterdir()] == []
    assert len(files.check(ORDERS)) == ORDERS.brokers


def test_a_name_can_be_used_again_after_a_creation_that_was_not_undone(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path / "clusters")
    with pytest.raises(OSError, match="File name too long"):
        files.begin(LONG)
    assert (tmp_path / "clusters" / "orders" / FILE_NAME).exists()
    assert len(files.check(ORDERS)) == ORDERS.brokers
    assert not (tmp_path / "clusters" / "orders").exists()


def test_a_start_removes_an_unfinished_cluster_whose_directory_name_is_too_long(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path / "clusters")
    with pytest.raises(OSError, match="File name too long"):
        files.begin(LONG)
    assert files.read() == []
    assert [*(tmp_path / "clusters").iterdir()] == []
