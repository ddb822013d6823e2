"""Tests in simulated time that a request waits for open changes of its connection, and for nothing else."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from builders.partitions import InlineWorkers
from builders.requests import RawPeer, in_simulation, request_frame
from millstream.broker.dispatch.dispatch_table import ApiRow, DispatchTable
from millstream.broker.dispatch.open_changes import APPENDS, CHANGED_PARTITIONS, CHANGED_TOPICS, NamedChange, OpenChange
from millstream.broker.dispatch.request import BrokerRequest, DeferredResponse, Result
from millstream.broker.net.listener import Listener
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.model.authorization import ALLOW_ALL
from millstream.model.rights import Right
from millstream.testing.simulated.clock import SimulatedClock
from millstream.testing.simulated.network import SimulatedNetwork
from millstream.wire.framing import read_correlation_id

MANY_BYTES = 1_000_000


def body_of(request: BrokerRequest) -> str:
    return bytes(request.frame[request.body :]).decode()


class Scene:
    """A listener with fictitious APIs, which use the keys of real ones. The body of a request is its partition."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self.network = network
        self.begun: list[int] = []
        """The correlation ids of the handled requests."""
        self.laters: dict[int, DeferredResponse] = {}
        rows = [
            ApiRow(0, "Produce", 3, 13, Right.NOTHING, self.append),
            ApiRow(
                1, "Fetch", 4, 18, Right.NOTHING, self.read,
                bytes_max=10 * MANY_BYTES, waits_for=CHANGED_PARTITIONS, targets=lambda request: {body_of(request)},
            ),
            ApiRow(11, "JoinGroup", 0, 9, Right.NOTHING, self.join),
            ApiRow(19, "CreateTopics", 2, 7, Right.NOTHING, self.create),
        ]  # fmt: skip
        clock = SimulatedClock(asyncio.get_running_loop())
        self.listener = Listener(DispatchTable(rows, ALLOW_ALL), clock, MemoryLimits(), InlineWorkers())

    def append(self, request: BrokerRequest) -> Result:
        return self._later(request, NamedChange(APPENDS, {body_of(request)}))

    def create(self, request: BrokerRequest) -> Result:
        return self._later(request, CHANGED_TOPICS)

    def join(self, request: BrokerRequest) -> Result:
        return self._later(request, None)

    def read(self, request: BrokerRequest) -> Result:
        self.begun.append(request.correlation_id)
        return b"read"

    def _later(self, request: BrokerRequest, change: OpenChange | None) -> Result:
        self.begun.append(request.correlation_id)
        later = self.laters[request.correlation_id] = DeferredResponse(change=change)
        return later

    def finish(self, correlation_id: int) -> None:
        self.laters[correlation_id].finish(b"done")

    async def peer(self) -> RawPeer:
        peer = await RawPeer.connect(self.network.host("peer"), "broker", 9092)
        await asyncio.sleep(0.1)
        return peer


def scene(test: Callable[[Scene, RawPeer], Coroutine[Any, Any, None]]) -> None:
    async def run(network: SimulatedNetwork) -> None:
        stage = Scene(network)
        await stage.listener.start(network.host("broker"), "broker", 9092)
        await test(stage, await stage.peer())
        await stage.listener.stop(1)
        assert stage.listener.memory.incoming_bytes == 0
        assert stage.listener.memory.outgoing_bytes == 0

    in_simulation(run)


def append(correlation_id: int, partition: str = "a") -> bytes:
    return request_frame("Produce", 3, correlation_id=correlation_id, body=[partition.encode()])


def read(correlation_id: int, partition: str = "a") -> bytes:
    return request_frame("Fetch", 4, correlation_id=correlation_id, body=[partition.encode()])


def join(correlation_id: int) -> bytes:
    return request_frame("JoinGroup", 0, correlation_id=correlation_id, body=[b""])


def create(correlation_id: int) -> bytes:
    return request_frame("CreateTopics", 2, correlation_id=correlation_id, body=[b""])


WAITS = {
    "for an append to its partition": [append(1), read(2)],
    "for the last of several appends": [append(9), append(1), append(8, "b"), read(2)],
    "for an append behind a long request": [join(9), append(1), read(2)],
    "for a created topic": [create(1), read(2)],
    "for a created topic, with every api": [create(1), join(2)],
}
"""Request 2 waits for request 1, and only for it once 9 is finished."""


@pytest.mark.parametrize("case", WAITS)
def test_a_request_waits_for_an_open_change_that_it_depends_on(case: str) -> None:
    async def test(stage: Scene, peer: RawPeer) -> None:
        peer.send(*WAITS[case], append(3, "c"))
        await asyncio.sleep(1)
        assert 1 in stage.begun
        assert not {2, 3} & set(stage.begun), "a waiting request holds the later ones"
        if case == "for the last of several appends":
            stage.finish(9)
            await asyncio.sleep(1)
            assert 2 not in stage.begun
        stage.finish(1)
        await asyncio.sleep(1)
        assert stage.begun[-2:] == [2, 3], "the requests are handled in order"
        for later in stage.laters.values():
            later.finish(b"done")
        count = len(WAITS[case]) + 1
        assert len([read_correlation_id(await peer.frame()) for _ in range(count)]) == count

    scene(test)


def test_the_duration_of_a_request_includes_its_wait_for_an_open_change() -> None:
    async def test(stage: Scene, peer: RawPeer) -> None:
        durations = {each.api: each.durations for each in stage.listener.shared.table.stats.values()}
        peer.send(append(1), read(2))
        await asyncio.sleep(3)
        stage.finish(1)
        await asyncio.sleep(1)
        peer.send(read(3))
        await asyncio.sleep(1)
        assert (durations["Produce"].count, durations["Fetch"].count) == (1, 2)
        assert 2.9 < durations["Fetch"].sum < 3.1, "the second read does not wait"

    scene(test)


DOES_NOT_WAIT = {
    "for an append to another partition": [append(1, "b"), read(2)],
    "for a long request": [join(1), read(2)],
    "to append to the same partition": [append(1), append(2)],
}


@pytest.mark.parametrize("case", DOES_NOT_WAIT)
def test_a_request_does_not_wait_for_an_unrelated_open_change(case: str) -> None:
    async def test(stage: Scene, peer: RawPeer) -> None:
        peer.send(*DOES_NOT_WAIT[case])
        await asyncio.sleep(1)
        assert stage.begun == [1, 2]
        for later in stage.laters.values():
            later.finish(b"done")
        assert [read_correlation_id(await peer.frame()) for _ in range(2)] == [1, 2]

    scene(test)


def test_a_request_goes_on_after_a_change_that_failed_without_a_response() -> None:
    async def test(stage: Scene, peer: RawPeer) -> None:
        peer.send(append(1), read(2))
        await asyncio.sleep(1)
        stage.laters[1].finish(None)
        assert read_correlation_id(await peer.frame()) == 2

    scene(test)


def test_a_change_that_waits_is_one_more_change_for_the_next_request() -> None:
    async def test(stage: Scene, peer: RawPeer) -> None:
        peer.send(create(1), create(2), read(3))
        for number in (1, 2):
            await asyncio.sleep(1)
            assert stage.begun[-1] == number
            stage.finish(number)
        assert [read_correlation_id(await peer.frame()) for _ in range(3)] == [1, 2, 3]

    scene(test)


def test_a_waiting_request_stops_reading_from_the_connection() -> None:
    async def test(stage: Scene, peer: RawPeer) -> None:
        large = read(3, "b" * MANY_BYTES)
        peer.send(append(1), read(2), *[large] * 10)
        await asyncio.sleep(10)
        assert stage.begun == [1]
        assert stage.listener.memory.incoming_bytes < 2 * MANY_BYTES
        stage.finish(1)
        assert len([await peer.frame() for _ in range(12)]) == 12

    scene(test)


def test_a_disconnect_during_a_wait_is_noticed_once_the_change_is_complete() -> None:
    async def test(stage: Scene, peer: RawPeer) -> None:
        peer.send(append(1), read(2))
        await asyncio.sleep(1)
        peer.close()
        await asyncio.sleep(1)
        stage.finish(1)
        await asyncio.sleep(1)
        assert stage.listener.connection_count == 0

    scene(test)


def test_a_waiting_request_is_discarded_with_its_connection() -> None:
    async def test(stage: Scene, peer: RawPeer) -> None:
        peer.send(append(1), read(2), read(3))
        await asyncio.sleep(1)
        await stage.listener.stop(0)
        await peer.lost()
        assert stage.listener.memory.incoming_bytes == 0
        stage.finish(1)
        await asyncio.sleep(1)
        assert stage.begun == [1]

    scene(test)


def test_a_stopping_broker_answers_the_change_and_not_the_waiting_request() -> None:
    async def test(stage: Scene, peer: RawPeer) -> None:
        peer.send(append(1), read(2))
        await asyncio.sleep(1)
        stopping = asyncio.create_task(stage.listener.stop(60))
        await asyncio.sleep(1)
        stage.finish(1)
        await stopping
        assert read_correlation_id(await peer.frame()) == 1
        await peer.lost()
        assert stage.begun == [1]

    scene(test)
