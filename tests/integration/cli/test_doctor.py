"""Tests `millstream doctor` on the files of a stopped broker, planted damage included, and on a running broker."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from builders.command import Command
from millstream.process.exit_codes import EXIT_CLEAN
from millstream.testing.real_broker import RealBroker

DAMAGED = 7


@contextlib.contextmanager
def stopped(tmp_path: Path, *, kill: bool = False) -> Iterator[Path]:
    """The data directory of a stopped broker with the topic `orders`."""
    with RealBroker(tmp_path / "data") as broker:
        Command(broker.bootstrap).succeed("put", "orders", given=b"one\ntwo\nthree\n")
        if kill:
            broker.kill()
        else:
            assert broker.stop() == EXIT_CLEAN
        yield broker.data_dir


def examined(*arguments: str, code: int = 0) -> dict[str, dict[str, Any]]:
    """Returns the diagnoses by subject. Those without a path lose it, so `checkpoint of /x` is `checkpoint`."""
    ended = Command("127.0.0.1:1").run("doctor", *arguments, "--json")
    assert ended.code == code, ended
    (document,) = ended.documents
    rows = document["diagnoses"]
    assert document["problems"] == sum(row["level"] == "problem" for row in rows)
    return {row["subject"].partition(" of /")[0]: row for row in rows}


def contents(data: Path) -> dict[str, tuple[int, bytes]]:
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in data.rglob("*") if path.is_file()}


def log_file(data: Path) -> Path:
    (found,) = data.glob("*/*.log")
    return found


@pytest.mark.parametrize("kill", [False, True])
def test_doctor_finds_no_problem_in_a_stopped_broker_and_changes_nothing(tmp_path: Path, kill: bool) -> None:
    with stopped(tmp_path, kill=kill) as data:
        before = contents(data)
        found = examined("--data", str(data))
        assert contents(data) == before
    assert {row["level"] for row in found.values()} <= {"ok", "warning"}, found
    assert found["partition orders-0"]["text"] == "offsets 0 to 3"
    assert found["catalog"]["text"] == "1 topic"
    assert ("clean stop" in found["checkpoint"]["text"]) is not kill


def test_doctor_reports_a_torn_tail_that_the_start_truncates(tmp_path: Path) -> None:
    with stopped(tmp_path, kill=True) as data:
        with open(log_file(data), "ab") as file:
            file.write(b"\0\0\0\0\0\0\0\3torn")
        found = examined("--data", str(data))["partition orders-0"]
    assert found["level"] == "warning"
    assert found["text"].startswith("offsets 0 to 3; the start truncates it there and sets aside 0 whole batches")


def test_doctor_reports_acknowledged_data_that_is_gone(tmp_path: Path) -> None:
    with stopped(tmp_path) as data:
        with open(log_file(data), "r+b") as file:
            file.truncate(10)
        found = examined("--data", str(data), code=DAMAGED)["partition orders-0"]
    assert found["level"] == "problem"
    assert found["text"].startswith("will be quarantined: ")
    assert "restore" in found["advice"]


def test_doctor_reports_damaged_and_missing_files(tmp_path: Path) -> None:
    with stopped(tmp_path) as data:
        (data / "checkpoint").write_bytes(b"garbage")
        (data / "catalog.sqlite").write_bytes(b"no database, but as long as a header of one" * 100)
        (data / "end-marks").unlink()
        (data / "reserve").unlink(missing_ok=True)
        data.chmod(0o755)
        found = examined("--data", str(data), code=DAMAGED)
        (data / "catalog.sqlite").unlink()
        assert "is missing" in examined("--data", str(data), code=DAMAGED)["catalog"]["text"]
    levels = {subject: found[subject]["level"] for subject in ("checkpoint", "catalog", "end marks", "reserve")}
    assert levels == {"checkpoint": "problem", "catalog": "problem", "end marks": "warning", "reserve": "warning"}
    assert found[str(data)]["text"] == "other users have rights (mode 755)"


def test_doctor_reports_a_directory_that_is_not_given_or_in_use(tmp_path: Path) -> None:
    both = f"{tmp_path / 'one'},{tmp_path / 'two'}"
    with RealBroker(tmp_path / "unused", extra_args=["--data", both]) as broker:
        used = examined("--data", both, code=DAMAGED)
        assert used[str(tmp_path / "one")]["text"] == f"in use by process {broker.pid}"
        broker.stop()
        alone = examined("--data", str(tmp_path / "one"), code=DAMAGED)
        assert "1 data directory of this broker not given or missing" in alone["data directories"]["text"]
        assert all(row["level"] != "problem" for row in examined("--data", both).values())
    assert "No such file" in examined("--data", str(tmp_path / "none"), code=DAMAGED)[str(tmp_path / "none")]["text"]


def test_doctor_examines_a_running_broker(broker: RealBroker, millstream: Command) -> None:
    lines = millstream.succeed("doctor").output.decode().splitlines()
    assert any(line.startswith("ok       version: broker ") for line in lines)
    assert any(line.startswith("ok       clock: ") for line in lines)
    assert "ok       health: ok" in lines
    assert any(" open files: " in line for line in lines)
    assert lines[-1].startswith("0 problems, ")
    assert Command("127.0.0.1:1").run("doctor").code == 5
