"""Tests that clients that reconnect in a loop are logged once a minute and reported while the loop lasts."""

import logging
from typing import Any

import pytest

from millstream.broker.net.client_info import ClientInfo
from millstream.broker.net.close_reasons import CloseReason
from millstream.broker.net.reconnects import HOSTS_MAX, NAMES_MAX, RECONNECTS_MAX, Reconnects
from millstream.process.logs import fields_of
from millstream.testing.simulated.clock import ManualClock


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.reconnects = Reconnects(self.clock)

    def connect(self, host: str = "10.0.0.7", client_id: str | None = "app") -> ClientInfo:
        self.reconnects.opened(host)
        peer = ClientInfo()
        peer.connected(host, 5)
        if client_id is not None:
            peer.introduced(memoryview(client_id.encode()))
        return peer

    def loop(self, count: int, *, period_ms: int, host: str = "10.0.0.7", reason: Any = CloseReason.MALFORMED) -> None:
        """Connect and disconnect, `count` times."""
        for _ in range(count):
            self.reconnects.ended(self.connect(host), reason)
            self.clock.advance_ms(period_ms)

    def warnings(self) -> list[str]:
        found = list(self.reconnects.findings())
        assert not any(each.is_problem for each in found)
        return [each.text for each in found]


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    assert {record.getMessage() for record in caplog.records} <= {"client reconnects often"}
    assert {record.levelno for record in caplog.records} <= {logging.WARNING}
    return [fields_of(record) for record in caplog.records]


def test_a_reconnect_loop_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.loop(RECONNECTS_MAX + 1, period_ms=500)
    assert lines(caplog) == []
    scene.loop(1, period_ms=500)
    (line,) = lines(caplog)
    assert line == {
        "peer": "10.0.0.7",
        "client_id": "app",
        "count": RECONNECTS_MAX + 1,
        "within_s": 30.5,
        "last_reason": "malformed",
    }
    scene.loop(600, period_ms=500)
    assert 5 <= len(lines(caplog)) <= 6, "the loop lasts for five more minutes"


def test_a_reconnect_loop_is_a_warning_in_health_while_it_lasts() -> None:
    scene = Scene()
    scene.loop(RECONNECTS_MAX, period_ms=200)
    assert scene.warnings() == []
    scene.loop(2, period_ms=200)
    (text,) = scene.warnings()
    assert text.startswith("client 10.0.0.7 (client id 'app') reconnects more than 60 times a minute")
    assert text.endswith("the reason 'malformed'")
    scene.loop(900, period_ms=200)
    assert len(scene.warnings()) == 1
    scene.clock.advance_ms(60_000)
    assert scene.warnings() == []


def test_a_host_below_the_limit_is_no_loop_for_any_length_of_time(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    for _ in range(30):
        scene.loop(RECONNECTS_MAX, period_ms=1_000)
        assert scene.warnings() == []
    assert lines(caplog) == []


def test_a_loop_that_slows_down_is_no_warning_after_two_minutes() -> None:
    scene = Scene()
    scene.loop(100, period_ms=100)
    assert len(scene.warnings()) == 1
    scene.loop(60, period_ms=3_000)
    assert scene.warnings() == []


def test_many_clients_of_a_host_that_start_together_are_no_loop(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    peers = [scene.connect() for _ in range(1_000)]
    for peer in peers:
        scene.reconnects.ended(peer, CloseReason.CLIENT)
    assert (lines(caplog), scene.warnings()) == ([], [])


def test_few_of_many_looping_hosts_are_named_and_remembered(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    for number in range(3):
        for host in range(HOSTS_MAX + 200):
            scene.connect(f"host {number}-{host}")
    assert len(scene.reconnects._hosts) == HOSTS_MAX
    for number in range(NAMES_MAX + 3):
        scene.loop(100, period_ms=0, host=f"looping {number}")
    assert len(lines(caplog)) == NAMES_MAX + 3
    warnings = scene.warnings()
    assert len(warnings) == NAMES_MAX + 1
    assert warnings[-1] == "3 further clients reconnect often"


def test_the_end_of_a_forgotten_host_is_ignored() -> None:
    scene = Scene()
    peer = scene.connect("old")
    for number in range(HOSTS_MAX):
        scene.connect(f"host {number}")
    scene.reconnects.ended(peer, CloseReason.CLIENT)
    assert scene.warnings() == []


def test_a_client_without_a_client_id_is_reported_by_its_host(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    for _ in range(RECONNECTS_MAX + 2):
        scene.reconnects.ended(scene.connect(client_id=None), CloseReason.TLS)
    assert "client_id" not in lines(caplog)[0]
    assert scene.warnings()[0].startswith("client 10.0.0.7 reconnects")
