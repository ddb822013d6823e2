"""Tests the comparison of the client's clock with the brokers' average."""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from datetime import timedelta

import pytest

import millstream
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.connection.clock_drift import ClockDrift, DriftWatch, average
from millstream.testing import EmbeddedBroker
from millstream.testing.simulated.loop import SimulatedLoop

SECOND = timedelta(seconds=1)
Calls = list[tuple[timedelta, Mapping[int, timedelta]]]


def test_the_drift_is_relative_to_the_average_of_the_brokers() -> None:
    found = average({1: 3 * SECOND, 2: -SECOND, 3: 4 * SECOND})
    assert found == (2 * SECOND, {1: 3 * SECOND, 2: -SECOND, 3: 4 * SECOND})


@pytest.mark.parametrize("behind", [timedelta(hours=1), timedelta(hours=-1)])
def test_a_client_reports_its_clock_drift_from_the_brokers(
    behind: timedelta, millstream_broker: EmbeddedBroker
) -> None:
    calls: Calls = []
    millstream_broker.clock.jump(behind)
    with millstream.connect(
        millstream_broker.bootstrap, on_clock_drift=lambda drift, brokers: calls.append((drift, brokers))
    ) as client:
        found = client.clock_drift()
        info_drift = timedelta(milliseconds=client.info().drift_ms)
    ((drift, brokers),) = calls
    for seen in (drift, found.drift, brokers[1], found.brokers[1], info_drift):
        assert abs(seen + behind) < timedelta(minutes=10)


def test_a_drift_within_the_threshold_does_not_call_back(millstream_broker: EmbeddedBroker) -> None:
    calls: Calls = []
    millstream_broker.clock.jump(timedelta(hours=1))
    with millstream.connect(
        millstream_broker.bootstrap,
        on_clock_drift=lambda drift, brokers: calls.append((drift, brokers)),
        clock_drift_threshold=timedelta(hours=2),
    ):
        assert calls == []


def test_the_drift_is_checked_at_every_interval_despite_failures(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nobody = MillstreamError(ErrorCode.NETWORK_EXCEPTION, "nobody is there")
    answers: Iterator[timedelta | Exception] = iter(
        [5 * SECOND, SECOND, nobody, -5 * SECOND, TypeError("a bug of ours"), 7 * SECOND]
    )
    seen: list[tuple[float, timedelta]] = []
    loop = SimulatedLoop()

    async def measure(*, timeout_s: float) -> ClockDrift:
        drift = next(answers)
        if isinstance(drift, Exception):
            raise drift
        return average({1: drift})

    def on_drift(drift: timedelta, brokers: Mapping[int, timedelta]) -> None:
        seen.append((loop.time(), drift))
        if drift < timedelta():
            raise ValueError("a bug of the user's")

    async def run() -> None:
        watch = DriftWatch(measure, on_drift, threshold_s=2.0, interval_s=60.0)
        begun_s = loop.time()
        await watch.check()
        running = loop.create_task(watch.run())
        await asyncio.sleep(310)
        running.cancel()
        assert [(at_s - begun_s, drift) for at_s, drift in seen] == [
            (0, 5 * SECOND),
            (180, -5 * SECOND),
            (300, 7 * SECOND),
        ]

    try:
        with caplog.at_level(logging.WARNING, "millstream.sdk"):
            loop.run_until_complete(run())
    finally:
        loop.end()
    assert "on_clock_drift callback failed" in caplog.text
    assert "a bug of ours" in caplog.text
