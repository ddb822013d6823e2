"""Tests the checks of a new cluster. Every refusal names its field."""

from pathlib import Path, PurePosixPath

import pytest

from millstream.model.errors import ErrorCode, FieldError
from millstream.process.control_protocol import BROKERS_MAX, NewCluster
from millstream.supervisor.clusters.name_checks import PROCESSES_MAX, check, check_inside, directories


@pytest.mark.parametrize(
    "new",
    [
        NewCluster("orders"),
        NewCluster("a-1", brokers=1, partitions=6, retention_ms=-1, retention_bytes=10**12),
        NewCluster("a" * 64, brokers=BROKERS_MAX, log_directories=("disk",)),
        NewCluster("orders", brokers=2, log_directories=("disk1/logs", "disk2/logs")),
    ],
)
def test_a_valid_cluster_is_accepted(new: NewCluster) -> None:
    check(new, 0)


@pytest.mark.parametrize(
    ("new", "field", "why"),
    [
        (NewCluster(""), "name", "bad cluster name ''"),
        (NewCluster("orders", log_directories=("d" * 300,)), "log_directories", "longer than 255 bytes"),
        (NewCluster("Orders"), "name", "1 to 64 of a-z, 0-9 and '-'"),
        (NewCluster("a" * 65), "name", "1 to 64"),
        (NewCluster("../up"), "name", "bad cluster name '../up'"),
        (NewCluster("orders\n"), "name", "bad cluster name"),
        (NewCluster("default"), "name", "is reserved"),
        (NewCluster("orders", brokers=0), "brokers", "brokers = 0: expected 1 to"),
        (NewCluster("orders", brokers=BROKERS_MAX + 1), "brokers", "expected 1 to"),
        (NewCluster("orders", partitions=0), "partitions", "partitions = 0"),
        (NewCluster("orders", retention_ms=-2), "retention_ms", "retention_ms = -2"),
        (NewCluster("orders", retention_bytes=2**63), "retention_bytes", "expected -1 to"),
        (NewCluster("orders", log_directories=("a", "b")), "log_directories", "2 log directories for 3 brokers"),
        (NewCluster("orders", log_directories=("/var/log",)), "log_directories", "expected a path inside"),
        (NewCluster("orders", log_directories=("a/../../b",)), "log_directories", "expected a path inside"),
        (NewCluster("orders", log_directories=("",)), "log_directories", "bad log directory"),
        (NewCluster("orders", log_directories=("a\0b",)), "log_directories", "bad log directory"),
        (NewCluster("orders", log_directories=("a,b",)), "log_directories", "no comma"),
        (NewCluster("orders", log_directories=("cluster.json",)), "log_directories", "is the cluster's own file"),
        (
            NewCluster("orders", log_directories=("./cluster.json.new/a",)),
            "log_directories",
            "is the cluster's own file",
        ),
        (NewCluster("orders", 2, (".", "broker-1/a")), "log_directories", "broker 2 would be inside that of broker 1"),
        (NewCluster("orders", 2, ("broker-2", ".")), "log_directories", "broker 1 would be inside that of broker 2"),
    ],
)
def test_an_invalid_cluster_is_refused_with_the_field(new: NewCluster, field: str, why: str) -> None:
    with pytest.raises(FieldError) as refused:
        check(new, 0)
    code = ErrorCode.INVALID_CONFIG if field.startswith("retention") else ErrorCode.INVALID_CLUSTER
    assert (refused.value.code, refused.value.field) == (code, field)
    assert why in refused.value.detail


def test_the_number_of_brokers_on_a_machine_is_limited() -> None:
    check(NewCluster("orders"), PROCESSES_MAX - 3)
    with pytest.raises(FieldError, match="are too many"):
        check(NewCluster("orders"), PROCESSES_MAX - 2)


def test_each_broker_has_its_own_directory() -> None:
    assert directories(NewCluster("orders", brokers=2)) == [PurePosixPath("broker-1"), PurePosixPath("broker-2")]
    one = NewCluster("orders", brokers=2, log_directories=("disk",))
    assert directories(one) == [PurePosixPath("disk/broker-1"), PurePosixPath("disk/broker-2")]
    each = NewCluster("orders", brokers=2, log_directories=("a", "b"))
    assert directories(each) == [PurePosixPath("a/broker-1"), PurePosixPath("b/broker-2")]


@pytest.mark.parametrize("at", ["clusters", "clusters/orders", "clusters/orders/disk"])
def test_a_symbolic_link_anywhere_in_the_path_is_refused(tmp_path: Path, at: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "data"
    link = root / at
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)
    with pytest.raises(FieldError, match=rf": {at} is a symbolic link"):
        check_inside(root, PurePosixPath("clusters/orders/disk/broker-1"))


def test_a_file_in_the_path_is_refused(tmp_path: Path) -> None:
    (tmp_path / "clusters").write_text("")
    with pytest.raises(FieldError, match=r": clusters is not a directory"):
        check_inside(tmp_path, PurePosixPath("clusters/orders/broker-1"))
