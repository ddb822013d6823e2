"""Tests `millstream serve` under a service manager: its notifications, and the systemd unit."""

import configparser
import os
import socket
from pathlib import Path

from millstream.node.settings import TABLE
from millstream.process.exit_codes import EXIT_ADDRESS, EXIT_CLEAN, EXIT_DATA_IN_USE, EXIT_SETTINGS
from millstream.testing.real_broker import RealBroker

WAIT_S = 60.0
UNIT = Path(__file__).parents[3] / "deploy" / "millstream.service"


def test_serve_notifies_the_service_manager_when_ready_and_when_stopping(tmp_path: Path) -> None:
    name = f"millstream-notify-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name)
        manager.settimeout(WAIT_S)
        with RealBroker(tmp_path / "data", gateway=True, env={"NOTIFY_SOCKET": f"@{name}"}) as broker:
            assert manager.recv(1000) == b"READY=1"
            assert broker.stop() == EXIT_CLEAN
        assert manager.recv(1000) == b"STOPPING=1"
        manager.setblocking(False)
        try:
            more = manager.recv(1000)
        except BlockingIOError:
            more = b""
    assert more == b"", "the gateway sends no notification"


def test_the_systemd_unit_names_existing_settings_and_exit_codes() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # keys of systemd are case-sensitive
    unit.read(UNIT)
    service = unit["Service"]
    assert (service["Type"], service["NotifyAccess"]) == ("notify", "main")
    assert service["ExecStart"].endswith("/millstream serve --config /etc/millstream/broker.toml")
    variable, _, value = service["Environment"].partition("=")
    assert variable == TABLE.fields["data"].variable
    assert value == f"/var/lib/{service['StateDirectory']}"
    final = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert final == {EXIT_SETTINGS, EXIT_DATA_IN_USE, EXIT_ADDRESS}, "a restart does not help these"
