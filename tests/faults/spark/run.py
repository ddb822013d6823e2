"""Runs two queries and readers of their output, and kills Spark's processes or the broker at random moments."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import NamedTuple

from faults.load import create_topic
from faults.spark.checkpoint import Checkpoint
from faults.spark.driver import Driver, executors, kill, planners, workers
from faults.spark.messages import Feeder
from faults.spark.oracle import Logs, check_copies, check_counts, check_source, phase, rows_read
from faults.spark.readers import LibrdkafkaReader, Reader, SdkReader
from millstream.model.names import TopicPartition
from millstream.sdk.sync.client import Client, connect
from millstream.testing.real_broker import RealBroker
from spark.cluster.machines import Cluster

PATIENCE_S = 180.0
SOURCE, COUNTS, COPIES = "source", "counts", "copies"
PARTITIONS = {SOURCE: 3, COUNTS: 2, COPIES: 3}
LOCAL = "local[2,4]"
"""A local master with two cores and at most four attempts per task."""
LIMITS = (500, 2_000, 10_000)
"""The row limits of a batch; each driver draws one."""

_log = logging.getLogger(__name__)


class Victim(StrEnum):
    DRIVER = "driver"
    WORKER = "worker"
    EXECUTOR = "executor"
    PLANNER = "planner"
    BROKER = "broker"


SOME = {Victim.WORKER: workers, Victim.EXECUTOR: executors, Victim.PLANNER: planners}
"""The victims with several processes, of which one or all are killed."""


class Moment(StrEnum):
    """A moment in the processing of a batch."""

    PLANNED = "planned"
    WRITING = "writing"
    DONE = "done"
    ANY = "any"


class State(NamedTuple):
    """The state of one query at the time of a kill."""

    topic: str
    planned: int
    done: int
    stored: int


class Run:
    def __init__(
        self, files: Path, broker: RealBroker, client: Client, random: Random, cluster: Cluster | None
    ) -> None:
        self._broker = broker
        self._client = client
        self._random = random
        source, counts, copies = (create_topic(broker.bootstrap, *each) for each in PARTITIONS.items())
        self._partitions = {SOURCE: source, COUNTS: counts, COPIES: copies}
        self._checkpoints = {topic: Checkpoint(files / "checkpoints" / topic) for topic in (COUNTS, COPIES)}
        places = (broker.bootstrap, *PARTITIONS, str(files / "checkpoints"))
        self.driver = Driver(files / "driver.log", LOCAL if cluster is None else cluster.master, *places)
        self._cluster = cluster
        self._feeder = Feeder(broker.bootstrap, SOURCE)
        self._source = SdkReader(broker.bootstrap, source)
        kinds: tuple[type[Reader], ...] = (SdkReader, LibrdkafkaReader)
        self._readers = [kind(broker.bootstrap, counts + copies) for kind in kinds]
        self._killed: list[tuple[str, list[State]]] = []

    def start(self) -> None:
        for thread in (self._feeder, self._source, *self._readers):
            thread.start()
        self.driver.start(self._random.choice(LIMITS))
        self._let_work()

    # Killing.

    def kill(self, victim: Victim) -> None:
        """Kill the victim at a random moment, and wait until both queries make progress again."""
        moment = self._random.choice(list(Moment))
        self._await(moment)
        if victim is Victim.DRIVER:
            part = self._random.choice(("all", "java", "python"))
            self.driver.kill(part)
            self._note(f"driver ({part})", moment)
            self.driver.start(self._random.choice(LIMITS))
        elif victim in SOME:
            self._wait(lambda: bool(SOME[victim](*self._sessions)), f"an {victim}")
            self._note(victim, moment)
            found = SOME[victim](*self._sessions)
            for process_id in self._random.choice((found[:1], found)):
                kill(process_id)
        else:
            self._note(victim, moment)
            self._broker.kill()
            self._broker.start()
        self._let_work()

    @property
    def _sessions(self) -> Sequence[int]:
        """Return the sessions of the processes that run tasks."""
        return [self.driver.session] if self._cluster is None else self._cluster.sessions

    def _await(self, moment: Moment) -> None:
        which = self._random.choice((COUNTS, COPIES))
        checkpoint = self._checkpoints[which]
        if moment is Moment.PLANNED:
            before = checkpoint.planned()
            self._wait(lambda: checkpoint.planned() > before, "a batch to be planned")
            time.sleep(self._random.uniform(0, 0.2))
        elif moment is Moment.WRITING:
            before = self._stored(which)
            self._wait(lambda: self._stored(which) > before, "rows to be stored")
        elif moment is Moment.DONE:
            before = checkpoint.done()
            self._wait(lambda: checkpoint.done() > before, "a batch to be done")
        else:
            time.sleep(self._random.uniform(0, 1))

    def _note(self, what: str, moment: Moment) -> None:
        states = [
            State(topic, checkpoint.planned(), checkpoint.done(), self._stored(topic))
            for topic, checkpoint in self._checkpoints.items()
        ]
        self._killed.append((f"{what}, {moment}", states))

    def _stored(self, topic: str) -> int:
        return sum(self._ends(topic).values())

    def _ends(self, topic: str) -> dict[TopicPartition, int]:
        found = self._client.offsets(dict.fromkeys(self._partitions[topic], "latest"))
        return {where: each.offset for where, each in found.items()}

    # Waiting.

    def _let_work(self) -> None:
        goals = [(each, each.planned() + 1) for each in self._checkpoints.values()]
        self._wait(lambda: all(each.done() >= goal for each, goal in goals), "the queries to get on")

    def _wait(self, is_so: Callable[[], bool], what: str) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while not is_so():
            self._feeder.changed = sum(self._checkpoints[COPIES].end().values())
            assert self.driver.is_running, f"the driver ended by itself:\n{self.driver.said()}"
            assert time.monotonic() < end_s, f"waited in vain for {what}:\n{self.driver.said()}"
            time.sleep(0.002)

    # The end.

    def finish(self) -> None:
        """Wait until all messages are processed, and check the output."""
        self._feeder.stop()
        ends = self._ends(SOURCE)
        last = {where.partition: offset for where, offset in ends.items()}
        self._wait(lambda: all(each.end() == last for each in self._checkpoints.values()), "everything to be read")
        self.driver.end()
        source = self._source.finish(ends)
        check_source(source, self._feeder.sent)
        targets = self._ends(COUNTS) | self._ends(COPIES)
        seen, seen_by_others = (reader.finish(targets) for reader in self._readers)
        assert seen == seen_by_others
        self._check(source, seen)

    def _check(self, source: Logs, seen: Logs) -> None:
        rows = {}
        for topic, check in ((COUNTS, check_counts), (COPIES, check_copies)):
            read = rows_read(self._checkpoints[topic].batches(), source)
            rows[topic] = check(read, {where: log for where, log in seen.items() if where.topic == topic})
        for what, states in self._killed:
            phases = (f"{each.topic} {phase(*each[1:], rows[each.topic])}" for each in states)
            _log.info("killed: %s: %s", what, ", ".join(phases))
        done = ", ".join(f"{topic} {len(each)} batches" for topic, each in rows.items())
        _log.info("kept: %d messages, %s", self._feeder.sent, done)


@contextmanager
def running(files: Path, random: Random, cluster: Cluster | None = None) -> Iterator[Run]:
    """Start a run on a Spark cluster, or in one JVM."""
    with RealBroker(files / "data") as broker, connect(broker.bootstrap) as client:
        run = Run(files, broker, client, random, cluster)
        try:
            run.start()
            yield run
        finally:
            run.driver.close()
