"""Runs the plan of one seed: a broker on its machine, clients and faults, from the start to the final reads."""

import asyncio
from dataclasses import dataclass
from random import Random

from millstream.catalog.memory import MemoryCatalog
from millstream.model.names import TopicPartition
from millstream.node.settings import BrokerSettings
from millstream.sdk.connection.address import parse_bootstrap
from millstream.sdk.connection.cluster import Cluster, ConnectionSettings
from millstream.sdk.wire_client import WireClient
from millstream.testing.simulated.entropy import SimulatedEntropy, branch
from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.machine import SimulatedMachines
from millstream.testing.simulated.trace import Trace
from millstream.testing.simulated.transport import Conditions
from millstream.testing.simulated.workers import SimulatedWorkers, Slowness
from millstream.testing.simulation.broker_service import BrokerService
from millstream.testing.simulation.compacted_table import CompactedTable
from millstream.testing.simulation.fault_player import FaultPlayer
from millstream.testing.simulation.faults import BROKER_HOST
from millstream.testing.simulation.group_work import GroupRecord, SimulatedMember, Watcher, read_to_the_end
from millstream.testing.simulation.history import FinalLog, History
from millstream.testing.simulation.idempotent_puts import IdempotentPuts
from millstream.testing.simulation.pipelined_producer import PipelinedProducer
from millstream.testing.simulation.plan import CLIENTS_HOST, Plan
from millstream.testing.simulation.settling import SETTLING_S, within
from millstream.testing.simulation.topic_churn import TopicChurn
from millstream.testing.simulation.workload import (
    HistoryRecorder,
    SimulatedProducer,
    SimulatedReader,
    WorkloadParts,
    create_topics,
    read_whole,
)

KAFKA_PORT = 9092
DATA_DIRECTORIES = ("/data", "/more-data")


@dataclass(slots=True)
class RunOutcome:
    """The results of a run, for the checker."""

    history: History
    final: dict[TopicPartition, FinalLog]
    problems: list[str]


class World:
    """The simulated world of a plan; `run` executes the plan."""

    def __init__(self, plan: Plan, loop: SimulatedLoop, trace: Trace) -> None:
        self.plan = plan
        self.loop = loop
        self.trace = trace
        self.history = History()
        self._random = Random(f"millstream/{plan.seed}/world")
        conditions = Conditions(plan.latency_s, plan.jitter_s, plan.pieces_chance)
        self._machines = SimulatedMachines(loop, self._random, trace=trace, conditions=conditions)
        self._network = self._machines.network
        self._clock = self._machines.add(CLIENTS_HOST).clock
        self._broker = self._make_broker()
        self._faults = FaultPlayer(loop, self._machines, [self._broker])
        self.partitions = [TopicPartition(t.name, n) for t in plan.topics for n in range(t.partitions)]
        keeps_everything = all(topic.retention_bytes < 0 for topic in plan.topics)
        probe = self._is_durable if plan.flush == "always" and keeps_everything else None
        kept = tuple(topic.name for topic in plan.topics if topic.retention_bytes < 0)
        self._group = GroupRecord(kept if plan.members else (), self._is_durable)
        self._book = HistoryRecorder(self.history, self._note, probe)
        self._table = CompactedTable(plan.table, self._book, branch(self._random, "table"), plan.flush == "always")
        self._once = IdempotentPuts(plan.once, self._book, branch(self._random, "once"), plan.flush == "always")

    def _make_broker(self) -> BrokerService:
        plan = self.plan
        slowness = Slowness(usual_s=plan.slow_disk_s, rare_s=20 * plan.slow_disk_s)
        machine = self._machines.add(BROKER_HOST, rate=plan.clock_rate, slowness=slowness)
        return BrokerService(
            machine,
            self.loop,
            MemoryCatalog(machine.clock, SimulatedEntropy(branch(self._random, "catalog"))),
            self._settings(),
            restart_delay_s=plan.restart_delay_s,
            on_end=lambda power_loss: self.history.crashed(power_loss=power_loss),
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
        """Run workload and faults concurrently, end all faults, read everything, and repeat that after a power loss."""
        keeper = self.loop.create_task(self._broker.run(), name="keeper")
        admin = self._client("admin")
        faults = self.loop.create_task(self._faults.play(self.plan.faults, self.plan.duration_s), name="faults")
        await within(SETTLING_S + self.plan.duration_s, create_topics(admin, self.plan.topics), "creating topics")
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
        await self._faults.heal(self.plan.faults)
        await within(SETTLING_S, asyncio.gather(*producers), "writing")
        await asyncio.sleep(1)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        self._group.is_over = True
        await within(SETTLING_S, asyncio.gather(*group), "leaving the group")
        await self._read_as_group()
        self.partitions += [TopicPartition(name, 0) for name in churn.kept]
        await self._read_everything("first")
        self._broker.crash(power_loss=True)
        final = await self._read_everything("second")
        problems = await within(SETTLING_S, churn.problems(), "listing topics")
        problems += await self._group_problems()
        await within(SETTLING_S, self._table.check(self._client("last table reader")), "reading the table")
        problems += self._table.problems
        once = self._once.check(self._client("last once reader"), self._cluster("last once writer"))
        await within(SETTLING_S, once, "putting once more")
        problems += self._once.problems
        await within(SETTLING_S, self._broker.end(), "stopping")
        admin.close()
        await keeper
        return RunOutcome(self.history, final, problems)

    # Clients

    def _client(self, name: str) -> WireClient:
        return WireClient(
            f"{BROKER_HOST}:{KAFKA_PORT}",
            network=self._network.host(name),
            clock=self._clock,
            entropy=SimulatedEntropy(branch(self._random, name)),
            workers=SimulatedWorkers(self.loop, Random(f"{self.plan.seed}/{name}")),
        )

    def _cluster(self, name: str) -> Cluster:
        """Create a cluster for a client that tries everything once."""
        seeds = parse_bootstrap(f"{BROKER_HOST}:{KAFKA_PORT}")
        return Cluster(seeds, self._network.host(name), ConnectionSettings())

    def _parts(self, name: str) -> WorkloadParts:
        random = branch(self._random, name)
        return WorkloadParts(self._client(name), self.partitions, self._book, random)

    def _start_producer(self, number: int) -> asyncio.Task[None]:
        plan = self.plan.producers[number]
        make = PipelinedProducer if plan.pipelined else SimulatedProducer
        producer = make(plan, self._parts(plan.name))
        return self.loop.create_task(producer.run(), name=plan.name)

    def _start_reader(self, number: int) -> asyncio.Task[None]:
        plan = self.plan.readers[number]
        reader = SimulatedReader(plan, self._parts(plan.name))
        return self.loop.create_task(reader.run(), name=plan.name)

    def _start_group(self) -> list[asyncio.Task[None]]:
        """Start the group's members, and a watcher."""
        record, book, network = self._group, self._book, self._network
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
            await within(SETTLING_S, reading, "reading as a group")

    async def _group_problems(self) -> list[str]:
        """Check that after the last power loss the commits are still stored."""
        if self._group.topics:
            watcher = Watcher(self._client("last watcher"), self._group, self._book)
            await within(SETTLING_S, watcher.look(), "looking at the group")
        return self._group.problems

    def _note(self, event: str, *values: str | int | float) -> None:
        self.trace.note(self.loop.time(), event, *values)

    def _is_durable(self, value: bytes) -> bool:
        return self._broker.machine.disk.holds_durably(value)

    async def _read_everything(self, which: str) -> dict[TopicPartition, FinalLog]:
        client = self._client(f"{which} final reader")

        async def read() -> dict[TopicPartition, FinalLog]:
            return {partition: await read_whole(client, partition, self._book) for partition in self.partitions}

        try:
            return await within(SETTLING_S, read(), f"the {which} final read")
        finally:
            client.close()
