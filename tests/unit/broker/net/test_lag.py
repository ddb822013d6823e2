"""Tests that the listener observes how late its timer runs."""

import asyncio

from builders.partitions import InlineWorkers, TurnedClock
from builders.requests import in_simulation
from millstream.broker.dispatch.dispatch_table import DispatchTable
from millstream.broker.net.listener import Listener
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.model.authorization import ALLOW_ALL
from millstream.testing.simulated.network import SimulatedNetwork


def test_the_lag_of_the_event_loop_is_observed_once_a_second() -> None:
    async def run(network: SimulatedNetwork) -> None:
        clock = TurnedClock()
        listener = Listener(DispatchTable([], ALLOW_ALL), clock, MemoryLimits(), InlineWorkers())
        await listener.start(network.host("broker"), "broker", 9092)
        for _ in range(3):
            clock.turn(1_000)
            await asyncio.sleep(1)
        assert (listener.lag.count, round(listener.lag.sum, 6)) == (3, 0)
        clock.turn(2_500)  # The second before the timer takes this long: the event loop is blocked.
        await asyncio.sleep(1)
        assert (listener.lag.count, round(listener.lag.sum, 6)) == (4, 1.5)
        clock.turn(1_000)
        await asyncio.sleep(1)
        assert (listener.lag.count, round(listener.lag.sum, 6)) == (5, 1.5), "the next timer is on time again"
        await listener.stop(1)
        await asyncio.sleep(5)
        assert listener.lag.count == 5

    in_simulation(run)
