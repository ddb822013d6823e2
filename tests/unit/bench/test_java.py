"""Tests the parsers for the output of Kafka's own tools."""

import pytest
from bench.java import consumed, echoed, produced

PRODUCED = """\
501 records sent, 100.1 records/sec (0.01 MB/sec), 1.0 ms avg latency, 4.0 ms max latency.
2000 records sent, 500.0 records/sec (0.05 MB/sec), 1.60 ms avg latency, 4.61 ms max latency, 1 ms 50th.
"""
CONSUMED = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms
2026-01-01 10:00:00:000, 2026-01-01 10:00:02:000, 2.0000, 1.0, 3000, 1500.0, 1500, 500
"""
ECHOED = """\
0\t71.997219
Avg latency: 1.9401 ms
Percentiles: 50th = 1, 99th = 8, 99.9th = 13
"""


def test_a_producers_figures_come_from_its_last_line() -> None:
    assert produced(PRODUCED, size=100) == {"messages": 2000, "bytes": 200_000, "seconds": 4.0}


def test_a_consumers_time_is_its_fetch_time() -> None:
    assert consumed(CONSUMED) == {"messages": 3000, "bytes": 2 * 1024 * 1024, "seconds": 0.5}


def test_the_mean_of_the_end_to_end_latency_tool_is_parsed_in_microseconds() -> None:
    assert echoed(ECHOED, messages=10, size=100)["mean_us"] == pytest.approx(1940.1)


def test_unexpected_tool_output_is_an_error_that_shows_it() -> None:
    with pytest.raises(RuntimeError, match="no such topic"):
        produced("no such topic", size=100)
