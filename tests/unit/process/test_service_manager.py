"""Tests the datagrams to a service manager's socket, and the failures that must not end the process."""

import os
import socket
from pathlib import Path

import pytest

from millstream.process.parent_watch import PARENT_VARIABLE
from millstream.process.service_manager import READY, SOCKET_VARIABLE, STOPPING, notify


def listening(address: str) -> socket.socket:
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(address)
    receiver.setblocking(False)
    return receiver


def test_states_reach_a_socket_file_and_an_abstract_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # The kernel limits the length of socket paths.
    for name, address in (("notify", "notify"), (f"@millstream-{os.getpid()}", f"\0millstream-{os.getpid()}")):
        monkeypatch.setenv(SOCKET_VARIABLE, name)
        with listening(address) as receiver:
            notify(READY)
            notify(STOPPING)
            assert [receiver.recv(100), receiver.recv(100)] == [b"READY=1", b"STOPPING=1"]


def test_a_child_process_sends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(SOCKET_VARIABLE, "notify")
    monkeypatch.setenv(PARENT_VARIABLE, "1")
    with listening("notify") as receiver:
        notify(READY)
        with pytest.raises(BlockingIOError):
            receiver.recv(100)


def test_a_missing_socket_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(SOCKET_VARIABLE, str(tmp_path / "missing"))
    notify(READY)
    assert caplog.messages == ["service manager not notified"]
    monkeypatch.delenv(SOCKET_VARIABLE)
    notify(READY)
    assert len(caplog.messages) == 1
