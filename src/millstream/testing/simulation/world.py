"""One seed's world: a broker on its machine, clients around it, and the faults of the plan; from start to verdict."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from millstream.catalog.memory import MemoryCatalog
from millstream.model.names import TopicPartition
from millstream.node.settings import BrokerSettings
from millstream.sdk.connection.address import parse_bootstrap
from millstream.sdk.connection.cluster import Cluster, ConnectionSettings
from millstream.sdk.wire_client import WireClient
from millstream.testing.simulated.clock import SimulatedClock
from millstream.testing.simulated.disk import SimulatedDisk
from millstream.testing.simulated.entropy import SimulatedEntropy, branch
from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.network import SimulatedNetwork
from millstream.testing.simulated.transport import Conditions
from millstream.testing.simulated.workers import SimulatedWorkers, Slowness
from millstream.testing.simulation.compacted_table import CompactedTable
from millstream.testing.simulation.group_work import GroupRecord, SimulatedMember, Watcher, read_to_the_end
from millstream.testing.simulation.history import FinalLog, History
from millstream.testing.simulation.idempotent_puts import IdempotentPuts
from millstream.testing.simulation.pipelined_producer import PipelinedProducer
from millstream.testing.simulation.plan import BROKER_HOST, Fault, FaultKind, Plan
from millstream.testing.simulation.simulated_process import BrokerProcess, SimulatedMachine
from millstream.testing.simulation.topic_churn import TopicChurn
from millstream.testing.simulation.trace import Trace
from millstream.testing.simulation.workload import (
    HistoryRecorder,
    SimulatedProducer,
    SimulatedReader,
    create_topics,
    read_whole,
)

T = TypeVar("T")

KAFKA_PORT = 9092
DATA_DIRECTORIES = ("/data", "/more-data")
_ERROR_CHANCE = 0.2
SETTLING_S = 200.0
"""So long after the last fault everything must have come to its end by itself."""


class UnsettledError(Exception):
    """Something did not come to an end although all faults were over."""


@dataclass(slots=True)
class RunOutcome:
    """What a run leaves to the checker."""

    history: History
    final: dict[TopicPartition, FinalLog]
    problems: list[str]


class World:
    """Built from a plan; `run` plays it."""

    def __init__(self, plan: Plan, loop: SimulatedLoop, trace: Trace) -> None:
        self.plan = plan
        self.loop = loop
        self.trace = trace
        self.history = History()
        self._random = Random(f"millstream/{plan.seed}/world")
        self._process: BrokerProcess | None = None
        self._lives = 0
        self._restarting = True
        self._began_on_bad_disk = False
        self._is_starting = False
        self._crash_in_start: Fault | None = None
        self.machine = self._make_machine()
        self._started_s = loop.time()
        self.partitions = [TopicPartition(t.name, n) for t in plan.topics for n in range(t.partitions)]
        keeps_everything = all(topic.retention_bytes < 0 for topic in plan.topics)
        probe = self._is_durable if plan.flush == "always" and keeps_everything else None
        kept = tuple(topic.name for topic in plan.topics if topic.retention_bytes < 0)
        self._group = GroupRecord(kept if plan.members else (), self._is_durable)
        self._book = HistoryRecorder(self.history, self.machine.note, probe)
        self._table = CompactedTable(plan.table, self._book, branch(self._random, "table"), plan.flush == "always")
        self._once = IdempotentPuts(plan.once, self._book, branch(self._random, "once"), plan.flush == "always")

    def _make_machine(self) -> SimulatedMachine:
        plan, loop, random = self.plan, self.loop, self._random
        conditions = Conditions(plan.latency_s, plan.jitter_s, plan.pieces_chance)
        clock = SimulatedClock(loop)
        return SimulatedMachine(
            loop=loop,
            random=branch(random, "machine"),
            trace=self.trace,
            network=SimulatedNetwork(loop, branch(random, "network"), conditions=conditions, trace=self.trace),
            clock=clock,
            disk=SimulatedDisk(branch(random, "disk")),
            catalog=MemoryCatalog(clock, SimulatedEntropy(branch(random, "catalog"))),
            host=BROKER_HOST,
            slowness=Slowness(usual_s=plan.slow_disk_s, rare_s=20 * plan.slow_disk_s),
        )

    def _settings(self) -> BrokerSettings:
        return BrokerSettings(
            data=DATA_DIRECTORIES[: self.plan.data_directories],
            host=BROKER_HOST,
            kafka_port=KAFKA_PORT,
            operator_port=-1,
            flush=self.plan.flush,
            retention_ms=-1,
            segment_bytes=self.plan.segment_bytes,
            cleaner_interval_ms=500,
            offsets_partitions=2,
            consumer_session_timeout_ms=6_000,
            consumer_heartbeat_interval_ms=1_000,
        )

    async def run(self) -> RunOutcome:
        """Workload and faults side by side; then everything heals, is read, and is read again after a power loss."""
        keeper = self.loop.create_task(self._keep_running(), name="keeper")
        admin = self._client("admin")
        faults = self.loop.create_task(self._play_faults(), name="faults")
        await self._within(SETTLING_S + self.plan.duration_s, create_topics(admin, self.plan.topics), "making topics")
        producers = [self._start_producer(number) for number in range(len(self.plan.producers))]
        readers = [self._start_reader(number) for number in range(len(self.plan.readers))]
        group = self._start_group()
        churn = TopicChurn(self._client("churner"), self._book, branch(self._random, "churn"), self.plan.churned_topics)
        producers.append(self.loop.create_task(churn.run(), name="churn"))
        producers.append(self.loop.create_task(self._table.write(self._client("table writer")), name="table writer"))
        once = self._once.write(self._client("once maker"), self._cluster("once writer"))
        producers.append(self.loop.create_task(once, name="once writer"))
        readers.append(self.loop.create_task(self._table.read(self._client("table reader")), name="table reader"))
        await faults
        await self._heal()
        await self._within(SETTLING_S, asyncio.gather(*producers), "writing")
        await asyncio.sleep(1)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        self._group.is_over = True
        await self._within(SETTLING_S, asyncio.gather(*group), "leaving the group")
        await self._read_as_group()
        self.partitions += [TopicPartition(name, 0) for name in churn.kept]
        await self._read_everything("first")
        self._crash(power_loss=True)
        final = await self._read_everything("second")
        problems = await self._within(SETTLING_S, churn.problems(), "listing topics")
        problems += await self._group_problems()
        await self._within(SETTLING_S, self._table.check(self._client("last table reader")), "reading the table")
        problems += self._table.problems
        once = self._once.check(self._client("last once reader"), self._cluster("last once writer"))
        await self._within(SETTLING_S, once, "putting once more")
        problems += self._once.problems
        await self._end(keeper, admin)
        return RunOutcome(self.history, final, problems)

    # The broker

    async def _keep_running(self) -> None:
        """Start the broker again whenever it is gone, as an init system does."""
        while self._restarting:
            self._lives += 1
            process = BrokerProcess(self.machine, self._settings(), self._lives, self._note_crash)
            self._process = process
            self._began_on_bad_disk = self._disk_refuses()
            if self._crash_in_start is not None:
                fault, self._crash_in_start = self._crash_in_start, None
                process.crash_in_write(int(fault.amount), power_loss=bool(fault.target))
            self._is_starting = True
            started = await process.start()
            self._is_starting = False
            if started:
                await process.ended
            self._process = None
            await asyncio.sleep(self.plan.restart_delay_s)

    def _note_crash(self, power_loss: bool) -> None:
        self.history.crashed(power_loss=power_loss)

    def _crash(self, *, power_loss: bool) -> None:
        if self._process is not None:
            self._process.crash(power_loss=power_loss)

    async def _end(self, keeper: asyncio.Task[None], admin: WireClient) -> None:
        self._restarting = False
        if self._process is not None:
            await self._within(SETTLING_S, self._process.stop(), "stopping")
        admin.close()
        await keeper

    # Faults

    async def _play_faults(self) -> None:
        for fault in self.plan.faults:
            await asyncio.sleep(max(0.0, self._started_s + fault.at_s - self.loop.time()))
            self.machine.note("fault", str(fault))
            await self._play(fault)
        await asyncio.sleep(max(0.0, self._started_s + self.plan.duration_s - self.loop.time()))

    async def _play(self, fault: Fault) -> None:
        machine, kind = self.machine, fault.kind
        if kind in (FaultKind.KILL, FaultKind.POWER_LOSS):
            self._crash(power_loss=kind is FaultKind.POWER_LOSS)
        elif kind is FaultKind.CRASH_IN_WRITE:
            if self._process is not None:
                self._process.crash_in_write(int(fault.amount), power_loss=bool(fault.target))
        elif kind is FaultKind.CRASH_IN_START:
            self._crash_in_start = fault
            self._crash(power_loss=bool(fault.target))
        elif kind is FaultKind.STOP:
            if self._process is not None:
                await self._within(SETTLING_S, self._process.stop(), "stopping")
        elif kind is FaultKind.CUT:
            machine.network.cut(fault.target)
        elif kind is FaultKind.CLOCK_JUMP:
            machine.clock.jump_ms(int(fault.amount * 1000))
        else:
            begin, end = self._lasting(fault)
            begin()
            self.loop.call_later(fault.amount, end)
            self._began_on_bad_disk |= self._is_starting and self._disk_refuses()

    def _lasting(self, fault: Fault) -> tuple[Callable[[], None], Callable[[], None]]:
        """How a fault that lasts begins, and how it ends."""
        network, disk = self.machine.network, self.machine.disk
        if fault.kind is FaultKind.BLACK_HOLE:
            return (lambda: network.block(fault.target)), (lambda: network.unblock(fault.target))
        if fault.kind is FaultKind.REFUSE:
            return (lambda: network.refuse(BROKER_HOST)), (lambda: network.accept(BROKER_HOST))
        if fault.kind is FaultKind.DISK_FULL:
            return (lambda: setattr(disk, "is_full", True)), (lambda: setattr(disk, "is_full", False))
        chance = "write_error_chance" if fault.kind is FaultKind.WRITE_ERROR else "flush_error_chance"
        return (lambda: setattr(disk, chance, _ERROR_CHANCE)), (lambda: setattr(disk, chance, 0.0))

    async def _heal(self) -> None:
        """All faults are over: those that last end by themselves, soon."""
        longest = max((fault.amount for fault in self.plan.faults if fault.kind in _LASTING), default=0.0)
        await asyncio.sleep(longest)
        self.machine.note("healed")
        if self._began_on_bad_disk and self._process is not None:
            # What a start could not repair it leaves alone, and tells the operator, who starts it again.
            await self._within(SETTLING_S, self._process.stop(), "stopping")

    def _disk_refuses(self) -> bool:
        disk = self.machine.disk
        return disk.is_full or disk.write_error_chance > 0 or disk.flush_error_chance > 0

    # Clients

    def _client(self, name: str) -> WireClient:
        return WireClient(
            f"{BROKER_HOST}:{KAFKA_PORT}",
            network=self.machine.network.host(name),
            clock=self.machine.clock,
            entropy=SimulatedEntropy(branch(self._random, name)),
            workers=SimulatedWorkers(self.loop, Random(f"{self.plan.seed}/{name}")),
        )

    def _cluster(self, name: str) -> Cluster:
        """For a client that tries everything once."""
        seeds = parse_bootstrap(f"{BROKER_HOST}:{KAFKA_PORT}")
        return Cluster(seeds, self.machine.network.host(name), ConnectionSettings())

    def _start_producer(self, number: int) -> asyncio.Task[None]:
        plan = self.plan.producers[number]
        random = branch(self._random, plan.name)
        make = PipelinedProducer if plan.pipelined else SimulatedProducer
        producer = make(plan, self._client(plan.name), self.partitions, self._book, random)
        return self.loop.create_task(producer.run(), name=plan.name)

    def _start_reader(self, number: int) -> asyncio.Task[None]:
        plan = self.plan.readers[number]
        random = branch(self._random, plan.name)
        reader = SimulatedReader(plan, self._client(plan.name), self.partitions, self._book, random)
        return self.loop.create_task(reader.run(), name=plan.name)

    def _start_group(self) -> list[asyncio.Task[None]]:
        """Its members, and one who watches them."""
        record, book, network = self._group, self._book, self.machine.network
        if not record.topics:
            return []
        tasks = []
        for plan in self.plan.members:
            member = SimulatedMember(plan, record, book, network, self._client, branch(self._random, plan.name))
            tasks.append(self.loop.create_task(member.run(), name=plan.name))
        watcher = Watcher(self._client("watcher"), record, book)
        return [*tasks, self.loop.create_task(watcher.run(), name="watcher")]

    async def _read_as_group(self) -> None:
        record = self._group
        if record.topics:
            partitions = [partition for partition in self.partitions if partition.topic in record.topics]
            reading = read_to_the_end(self._client("last member"), record, self._book, partitions)
            await self._within(SETTLING_S, reading, "reading as a group")

    async def _group_problems(self) -> list[str]:
        """After the last power loss, what was committed is still there."""
        if self._group.topics:
            watcher = Watcher(self._client("last watcher"), self._group, self._book)
            await self._within(SETTLING_S, watcher.look(), "looking at the group")
        return self._group.problems

    def _is_durable(self, value: bytes) -> bool:
        return self.machine.disk.holds_durably(value)

    async def _read_everything(self, which: str) -> dict[TopicPartition, FinalLog]:
        client = self._client(f"{which} final reader")

        async def read() -> dict[TopicPartition, FinalLog]:
            return {partition: await read_whole(client, partition, self._book) for partition in self.partitions}

        try:
            return await self._within(SETTLING_S, read(), f"the {which} final read")
        finally:
            client.close()

    async def _within(self, timeout_s: float, work: Awaitable[T], what: str) -> T:
        try:
            async with asyncio.timeout(timeout_s):
                return await work
        except TimeoutError:
            raise UnsettledError(f"{what} did not come to an end within {timeout_s:g} s of simulated time") from None


_LASTING = (
    FaultKind.BLACK_HOLE,
    FaultKind.REFUSE,
    FaultKind.DISK_FULL,
    FaultKind.WRITE_ERROR,
    FaultKind.FLUSH_ERROR,
)
