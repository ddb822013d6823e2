"""Tests what `millstream serve --check` finds, and that it changes nothing."""

import fcntl
import socket
from pathlib import Path

import pytest

from millstream.cli.commands import gateway
from millstream.cli.commands.serve import check
from millstream.gateway.settings import GatewaySettings
from millstream.node.settings import BrokerSettings
from millstream.process import exit_codes
from millstream.supervisor import serve_check

ANY_PORTS = {"kafka_port": 0, "operator_port": 0, "http_port": 0, "grpc_port": 0}


def checked(capsys: pytest.CaptureFixture[str], data: Path, **settings: object) -> tuple[int, list[str]]:
    code = check(BrokerSettings(**{"data": (str(data),), **ANY_PORTS, **settings}))  # type: ignore[arg-type]
    return code, capsys.readouterr().out.splitlines()


def test_a_possible_start_passes_and_creates_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = checked(capsys, tmp_path / "data")
    assert code == exit_codes.EXIT_CLEAN
    assert lines == [
        "ok       settings: clients connect to 127.0.0.1, flush=always",
        f"ok       data directory {tmp_path / 'data'}: will be created",
        "ok       gateway: its settings are valid",
        "All 3 checks passed; nothing was started.",
    ]
    assert [*tmp_path.iterdir()] == []


def test_a_port_in_use_is_a_problem_with_the_exit_code_of_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, lines = checked(capsys, tmp_path, grpc_port=port)
    assert code == exit_codes.EXIT_ADDRESS
    assert lines[-3].startswith(f"problem  grpc_port {port}: cannot listen on 127.0.0.1:{port}: ")
    assert lines[-1] == "The start would fail: 1 of 4 checks found a problem."


def test_a_port_of_a_gateway_that_is_not_installed_is_not_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_check, "missing_gateway_packages", lambda: ["grpc"])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, lines = checked(capsys, tmp_path, http_port=taken.getsockname()[1])
    assert code == exit_codes.EXIT_CLEAN
    assert lines[-2].endswith("not used, because the gateway's packages are not installed")


def test_a_directory_in_use_is_a_problem_that_names_the_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open(tmp_path / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4711\n")
        lock.flush()
        code, lines = checked(capsys, tmp_path)
    assert code == exit_codes.EXIT_DATA_IN_USE
    assert f"problem  data directory {tmp_path}: in use by process 4711; stop it" in lines[1]
    assert checked(capsys, tmp_path)[0] == exit_codes.EXIT_CLEAN


def test_a_directory_that_cannot_be_used_is_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for data in (file, file / "data"):
        code, lines = checked(capsys, data)
        assert code == exit_codes.EXIT_FAILED
        assert lines[1].startswith(f"problem  data directory {data}: ")


def test_settings_that_contradict_each_other_end_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = checked(capsys, tmp_path, kafka_port=7, http_port=7)
    assert code == exit_codes.EXIT_SETTINGS
    assert lines[0] == "problem  settings: kafka_port and http_port are both 7; choose another port with --http-port"


def test_a_host_beyond_loopback_is_mentioned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = checked(capsys, tmp_path, host="0.0.0.0", advertised_host="b")
    assert code == exit_codes.EXIT_CLEAN
    assert lines[-2].startswith("ok       exposure: 0.0.0.0 admits other hosts without authentication")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("DRAIN_MS", "soon", "drain_ms = 'soon' (environment variable MILLSTREAM_GATEWAY_DRAIN_MS)"),
        ("CLUSTER", "default=a:1", "settings: cluster: the name 'default' is reserved"),
        ("CONFIG", "missing.toml", "cannot read the settings file missing.toml"),
    ],
)
def test_a_setting_that_makes_the_gateway_fail_is_a_problem(
    name: str,
    value: str,
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(f"MILLSTREAM_GATEWAY_{name}", value)
    code, lines = checked(capsys, tmp_path)
    assert code == exit_codes.EXIT_SETTINGS
    assert lines[-2].startswith(f"problem  gateway: {reason}")
    assert checked(capsys, tmp_path, http_port=-1, grpc_port=-1)[0] == exit_codes.EXIT_CLEAN, "no gateway is started"


def test_the_check_of_a_gateway_names_its_ports(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = GatewaySettings(http_port=port, grpc_port=0, cluster={"further": "b:1"})
        assert gateway.check(settings) == exit_codes.EXIT_ADDRESS
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ok       settings: serves the clusters default, further; default is at 127.0.0.1:9092"
    assert lines[1].startswith(f"problem  http_port {port}: cannot listen on 127.0.0.1:{port}: ")
    assert gateway.check(GatewaySettings(http_port=port, grpc_port=port)) == exit_codes.EXIT_SETTINGS
    assert gateway.check(GatewaySettings(http_port=-1, grpc_port=-1)) == exit_codes.EXIT_SETTINGS
    assert gateway.check(GatewaySettings(http_port=0, grpc_port=0)) == exit_codes.EXIT_CLEAN
