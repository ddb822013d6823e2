"""Tests that client connections leave file descriptors for the operator port, log files and the catalog."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from builders.partitions import InlineWorkers, TurnedClock
from millstream.broker.dispatch.dispatch_table import DispatchTable
from millstream.broker.net.connection import ClientConnection
from millstream.broker.net.listener import Listener
from millstream.broker.net.listener_state import DESCRIPTORS_RESERVED, connections_max
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.model.authorization import ALLOW_ALL
from millstream.process.process_stats import segment_files_max

LIMIT = 1_000


class FakeTransport:
    """The transport of a connection with this file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.is_aborted = False
        self._descriptor = descriptor

    def get_extra_info(self, name: str) -> object:
        return SimpleNamespace(fileno=lambda: self._descriptor) if name == "socket" else ("10.0.0.1", 5_000)

    def set_write_buffer_limits(self, **limits: int) -> None:
        pass

    def abort(self) -> None:
        self.is_aborted = True


def is_accepted(listener: Listener, descriptor: int) -> bool:
    """Open and close a connection with this file descriptor. True if it was not aborted at once."""
    transport: Any = FakeTransport(descriptor)
    connection = ClientConnection(listener.shared)
    connection.connection_made(transport)
    assert len(listener.shared.connections) == (not transport.is_aborted)
    connection.connection_lost(None)
    return not transport.is_aborted


@pytest.mark.parametrize(
    ("descriptors_max", "descriptor", "accepted"),
    [
        (LIMIT, LIMIT - DESCRIPTORS_RESERVED - 1, True),
        (LIMIT, LIMIT - DESCRIPTORS_RESERVED, False),
        (LIMIT, LIMIT - 1, False),
        (0, LIMIT, True),
    ],
)
def test_a_connection_on_a_reserved_descriptor_is_refused(
    descriptors_max: int, descriptor: int, accepted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        table, clock = DispatchTable([], ALLOW_ALL), TurnedClock()
        listener = Listener(table, clock, MemoryLimits(), InlineWorkers(), descriptors_max=descriptors_max)
        for _ in range(3):
            assert is_accepted(listener, descriptor) == accepted
        counters = listener.counters
        assert (counters.connections_accepted, counters.connections_refused) == ((3, 0) if accepted else (0, 3))
        assert counters.connections_cut == 0

    asyncio.run(story())
    events = [record.getMessage() for record in caplog.records]
    assert events == ([] if accepted else ["connection refused"]), "at most one line per peer and minute"


@pytest.mark.parametrize("limit", [64, 300, 1_024, 4_096, 20_000, 1_048_576])
def test_connections_leave_room_for_all_log_files(limit: int) -> None:
    log_files = segment_files_max(limit)
    left = limit - connections_max(descriptors_max=limit, log_files_max=log_files) - log_files
    assert left >= min(DESCRIPTORS_RESERVED, limit // 4)


def test_connections_beyond_the_maximum_are_refused_on_any_descriptor() -> None:
    async def story() -> None:
        table, clock = DispatchTable([], ALLOW_ALL), TurnedClock()
        listener = Listener(
            table, clock, MemoryLimits(), InlineWorkers(), descriptors_max=LIMIT, log_files_max=LIMIT // 2
        )
        transports: list[Any] = [FakeTransport(number) for number in range(LIMIT // 2)]
        for transport in transports:
            ClientConnection(listener.shared).connection_made(transport)
        accepted = sum(not transport.is_aborted for transport in transports)
        assert accepted == len(listener.shared.connections) == LIMIT - LIMIT // 2 - LIMIT // 8

    asyncio.run(story())
