"""Tests the calls that the metrics add to a request, on each path of a response."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from budgets import table
from budgets.hand_network import HandNetwork, SocketCounts
from builders.partitions import InlineWorkers
from builders.requests import request_frame
from millstream.broker.dispatch.dispatch_table import ApiRow, DispatchTable
from millstream.broker.dispatch.request import BrokerRequest, DeferredResponse, Result
from millstream.broker.net.listener import Listener
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.model.authorization import ALLOW_ALL
from millstream.model.rights import Right
from millstream.process import metrics
from millstream.seams.clock import SystemClock

FRAME = request_frame("Produce", 3, body=[b"records"])


@contextmanager
def calls_of_metrics() -> Iterator[list[str]]:
    """Record the calls to and within the metrics, and each reading of the monotonic clock."""
    calls: list[str] = []

    def called(frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call" and argument is time.monotonic:
            calls.append("monotonic")
        elif event in ("call", "c_call") and frame.f_code.co_filename == metrics.__file__:
            calls.append(frame.f_code.co_name)

    sys.setprofile(called)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def later(request: BrokerRequest) -> Result:
    response = DeferredResponse()
    asyncio.get_running_loop().call_soon(response.finish, b"done")
    return response


HANDLERS: dict[str, Callable[[BrokerRequest], Result]] = {
    "at once": lambda request: b"done",
    "later": later,
    "without a response": lambda request: None,
}


@pytest.mark.parametrize("path", HANDLERS)
def test_the_metrics_of_a_request_stay_within_their_budget(path: str) -> None:
    async def story() -> None:
        rows = [ApiRow(0, "Produce", 3, 13, Right.NOTHING, HANDLERS[path])]
        listener = Listener(DispatchTable(rows, ALLOW_ALL), SystemClock(), MemoryLimits(), InlineWorkers())
        network = HandNetwork(SocketCounts(), lambda: None)
        await listener.start(network, "127.0.0.1", 0)
        peer = network.dial()
        peer.send(FRAME)
        await asyncio.sleep(0)
        (durations,) = [each.durations for each in listener.shared.table.stats.values()]
        assert durations.count == 1
        # The event loop reads the same clock when it calls back, so a turn that does nothing is subtracted.
        with calls_of_metrics() as idle:
            await asyncio.sleep(0)
        with calls_of_metrics() as calls:
            peer.send(FRAME)
            await asyncio.sleep(0)
        assert durations.count == 2
        table.check(table.REQUEST_METRICS, {table.CALLS: len(calls) - len(idle)})
        peer.hang_up()
        await listener.stop(1)

    asyncio.run(story())
