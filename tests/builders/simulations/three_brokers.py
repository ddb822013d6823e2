"""Runs three brokers on three machines in one loop, each with its own cluster and client, under planned faults."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from millstream.catalog.memory import MemoryCatalog
from millstream.model.errors import MillstreamError
from millstream.model.names import TopicPartition
from millstream.node.settings import BrokerSettings
from millstream.sdk.producing.failures import UnstoredError
from millstream.sdk.producing.options import ProducerSettings
from millstream.sdk.wire_client import WireClient
from millstream.testing.simulated.entropy import SimulatedEntropy, branch
from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.machine import SimulatedMachine, SimulatedMachines
from millstream.testing.simulated.trace import Trace
from millstream.testing.simulated.workers import SimulatedWorkers
from millstream.testing.simulation.broker_service import BrokerService
from millstream.testing.simulation.fault_player import FaultPlayer
from millstream.testing.simulation.faults import DAMAGE, Fault, FaultHosts, FaultKind, draw_fault
from millstream.testing.simulation.history import History
from millstream.testing.simulation.plan import TopicPlan
from millstream.testing.simulation.repeatable import repeatable_run
from millstream.testing.simulation.workload import HistoryRecorder, create_topics, read_whole

BROKERS = ("broker-1", "broker-2", "broker-3")
HOSTS = FaultHosts(brokers=BROKERS, clients=tuple(f"client of {host}" for host in BROKERS), clocks=BROKERS)
RATES = (0.9, 1.0, 1.1)
DURATION_S = 20.0
READ_S = 60.0
TOPIC = TopicPlan("orders", 1, -1)
ORDERS = TopicPartition("orders", 0)


@dataclass(slots=True)
class BrokerOutcome:
    """One broker's messages: the acknowledged ones, and those read at the end (None if reading failed)."""

    acknowledged: list[bytes] = field(default_factory=list)
    stored: list[bytes] | None = None


@dataclass(frozen=True, slots=True)
class ThreeBrokersRun:
    brokers: dict[str, BrokerOutcome]
    digest: str
    failures: list[str]
    steps: int
    simulated_s: float


def faults_of_every_kind(seed: int) -> tuple[Fault, ...]:
    """Return one fault of each kind, on hosts and at times that the seed determines."""
    random = Random(f"three brokers/{seed}")
    faults = [draw_fault(random, kind, random.uniform(0, DURATION_S), HOSTS) for kind in FaultKind]
    return tuple(sorted(faults, key=lambda fault: fault.at_s))


def damaged(faults: Sequence[Fault]) -> set[str]:
    """Return the brokers that may lose flushed data."""
    return {fault.host for fault in faults if fault.kind in DAMAGE}


def run_three_brokers(seed: int, faults: Sequence[Fault], *, puts: bool = True) -> ThreeBrokersRun:
    """Apply the faults, end them, and read everything; the same seed and faults give the same digest."""
    loop, trace = SimulatedLoop(), Trace()
    began_s = loop.time()
    with repeatable_run(loop, trace):
        world = _ThreeBrokers(loop, seed, trace, puts=puts)
        loop.run_until_complete(world.run(faults))
        run = ThreeBrokersRun(
            world.outcomes, trace.digest(), list(loop.settle_failures()), loop.steps, loop.time() - began_s
        )
        loop.end()
    return run


class _ThreeBrokers:
    def __init__(self, loop: SimulatedLoop, seed: int, trace: Trace, *, puts: bool) -> None:
        self._loop = loop
        self._puts = puts
        self._random = Random(f"three brokers/{seed}/world")
        self._machines = SimulatedMachines(loop, self._random, trace=trace)
        self._clock = self._machines.add("clients").clock
        self._services = [self._add_broker(host, number) for number, host in enumerate(BROKERS)]
        self._brokers = [service.machine for service in self._services]
        self._book = HistoryRecorder(
            History(), lambda event, *values: trace.note(loop.true_time(), event, *values), None
        )
        self.outcomes = {host: BrokerOutcome() for host in BROKERS}

    def _add_broker(self, host: str, number: int) -> BrokerService:
        machine = self._machines.add(
            host, rate=RATES[number], wall_offset_ms=1000 * number, monotonic_start_s=5_000.0 * number
        )
        catalog = MemoryCatalog(machine.clock, SimulatedEntropy(branch(self._random, "catalog")))
        settings = BrokerSettings(data=("/data",), host=host, operator_port=-1, flush="always", offsets_partitions=1)
        return BrokerService(machine, self._loop, catalog, settings, restart_delay_s=1.0)

    async def run(self, faults: Sequence[Fault]) -> None:
        player = FaultPlayer(self._loop, self._machines, self._services)
        keepers = [self._loop.create_task(service.run()) for service in self._services]
        writers = [self._loop.create_task(self._write(machine)) for machine in self._brokers if self._puts]
        await player.play(faults, DURATION_S)
        await player.heal(faults)
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
        if self._puts:
            await asyncio.gather(*(self._read(machine) for machine in self._brokers))
        await asyncio.gather(*(service.end() for service in self._services))
        await asyncio.gather(*keepers)

    def _client(self, machine: SimulatedMachine) -> WireClient:
        name = f"client of {machine.host}"
        return WireClient(
            f"{machine.host}:9092",
            network=self._machines.network.host(name),
            clock=self._clock,
            entropy=SimulatedEntropy(branch(self._random, name)),
            workers=SimulatedWorkers(self._loop, branch(self._random, name)),
        )

    async def _write(self, machine: SimulatedMachine) -> None:
        """Write numbered values while the faults are applied."""
        client, number, end_s = self._client(machine), 0, self._loop.time() + DURATION_S
        await create_topics(client, [TOPIC])
        async with client.producer(ProducerSettings(timeout_s=5)) as producer:
            while self._loop.time() < end_s:
                value, number = f"<{machine.host}/{number}>".encode(), number + 1
                try:
                    await producer.put(TOPIC.name, value, partition=0)
                except UnstoredError:
                    continue
                self.outcomes[machine.host].acknowledged.append(value)
                await asyncio.sleep(0.05)

    async def _read(self, machine: SimulatedMachine) -> None:
        client = self._client(machine)
        try:
            async with asyncio.timeout(READ_S):
                log = await read_whole(client, ORDERS, self._book)
        except (TimeoutError, MillstreamError) as error:
            self._book.note("cannot be read", machine.host, repr(error))
        else:
            self.outcomes[machine.host].stored = [value for _, value in log.records]
        finally:
            client.close()


if __name__ == "__main__":
    seed = int(sys.argv[1])
    sys.stdout.write(run_three_brokers(seed, faults_of_every_kind(seed)).digest + "\n")
