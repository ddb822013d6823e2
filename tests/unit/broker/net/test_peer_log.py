"""Tests the log lines about misbehaving peers: each event once, and never too many."""

import logging

import pytest

from millstream.broker.net.peer_log import LINES_MAX, PEERS_MAX, QUIET_S, PeerLog
from millstream.testing.simulated.clock import ManualClock


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_each_peer_and_event_is_logged_once_a_minute_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    log = PeerLog(clock)
    for _ in range(10):
        log.note("one", "bad frame", "why")
        log.note("two", "bad frame", "why")
        log.note("one", "slow reader", "why")
    assert lines(caplog) == ["bad frame", "bad frame", "slow reader"]
    clock.advance_ms(int(QUIET_S * 1000))
    log.note("one", "bad frame", "why")
    assert caplog.records[-1].__dict__["times_since_last_log"] == 9


def test_many_misbehaving_peers_cause_few_log_lines_and_little_memory(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    log = PeerLog(clock)
    for number in range(3 * PEERS_MAX):
        log.note(f"peer {number}", "bad frame", "why")
    assert len(lines(caplog)) == LINES_MAX
    clock.advance_ms(int(QUIET_S * 1000))
    log.note("another", "bad frame", "why")
    assert lines(caplog)[LINES_MAX:] == ["further connection errors not logged", "bad frame"]
    assert caplog.records[-2].__dict__["count"] == 3 * PEERS_MAX - LINES_MAX
