"""Runs toy machines over real partitions, on a disk in memory and in simulated time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from builders.coordination.simulated_site import SimulatedSite
from builders.coordination.toy_machine import Get, Put, ToyAnswer, ToyCommand, ToyMachine
from builders.partitions import ELSEWHERE, NODE_ID, read_all
from millstream.coordination.coordinator import Coordinator, InternalTopic
from millstream.coordination.effects import LogRecord
from millstream.coordination.key_hash import partition_of
from millstream.coordination.shard import Shard
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import BrokerId
from millstream.partition.leadership import Leadership
from millstream.seams.workers import Workers
from millstream.storage.store import FlushPolicy
from millstream.testing.simulated.loop import SimulatedLoop

TOPIC = InternalTopic("__toys", 2, {"cleanup.policy": "compact", "segment.bytes": "1048576"})
KEY = "key"

ToyShard = Shard[ToyCommand, ToyAnswer, str]


def failed(command: ToyCommand, error: ErrorCode, detail: str = "") -> ToyAnswer:
    return ToyAnswer(error)


class ToyHooks:
    """Implements `ShardHooks`, and records all calls."""

    def __init__(self, notices: list[str]) -> None:
        self.notify: Callable[[str], None] = notices.append
        self.log: list[tuple[int, LogRecord]] = []
        self.answers: list[ToyAnswer] = []

    def new_machine(self) -> ToyMachine:
        self.log.clear()
        return ToyMachine()

    def failed(self, command: ToyCommand, error: ErrorCode, detail: str = "") -> ToyAnswer:
        return failed(command, error, detail)

    def not_written(self, command: ToyCommand, error: ErrorCode) -> ToyAnswer:
        too_large = error in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
        return ToyAnswer(error if too_large else ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def replayed(self, record: LogRecord, offset: int) -> None:
        self.log.append((offset, record))

    def appended(self, records: Sequence[LogRecord], base_offset: int) -> None:
        self.log += enumerate(records, base_offset)

    def answered(self, command: ToyCommand, answer: ToyAnswer) -> None:
        self.answers.append(answer)


class Asked:
    """A command in flight; `answers` never gets more than one answer. `check` is called with the answer."""

    def __init__(
        self,
        ask: Callable[[Callable[[ToyAnswer], None]], Callable[[], None]],
        check: Callable[[ToyAnswer], None] | None = None,
    ) -> None:
        self.answers: list[ToyAnswer] = []
        self._check = check
        self._answered = asyncio.Event()
        self.cancel = ask(self._reply)

    def _reply(self, answer: ToyAnswer) -> None:
        assert not self.answers, "a command is answered once"
        self.answers.append(answer)
        self._answered.set()
        if self._check is not None:
            self._check(answer)

    async def answer(self) -> ToyAnswer:
        await self._answered.wait()
        return self.answers[0]


class ToySite(SimulatedSite):
    def __init__(self, loop: SimulatedLoop, seed: int, policy: FlushPolicy) -> None:
        super().__init__(loop, seed, policy)
        self.notices: list[str] = []
        self.shards: dict[int, ToyShard] = {}
        self.hooks: dict[int, ToyHooks] = {}
        self._toys: Coordinator[ToyCommand, ToyAnswer, str] | None = None
        self._workers: Workers | None = None

    @property
    def toys(self) -> Coordinator[ToyCommand, ToyAnswer, str]:
        assert self._toys is not None
        return self._toys

    async def begin(self, workers: Workers) -> None:
        self._workers = workers
        turn = asyncio.Lock()

        def new_shard(partition: Leadership) -> ToyShard:
            hooks = ToyHooks(self.notices)
            shard = Shard(partition, hooks, clock=self.clock, workers=workers, turn=turn)
            self.shards[partition.number], self.hooks[partition.number] = shard, hooks
            return shard

        self._toys = Coordinator(TOPIC, self.partitions, new_shard, failed)
        await self._toys.start()

    async def end(self) -> None:
        toys, self._toys = self._toys, None
        if toys is not None:
            await toys.stop()

    async def begin_again(self) -> None:
        """Start a coordinator after `end`, on the same partitions."""
        assert self._workers is not None
        await self.begin(self._workers)

    async def move_away(self, number: int) -> None:
        """Another broker leads a partition from now on."""
        await self.move_leader(TOPIC.name, number, ELSEWHERE.node_id)

    async def move_back(self, number: int) -> None:
        """This broker leads the partition again."""
        await self.move_leader(TOPIC.name, number, BrokerId(NODE_ID))

    async def loaded(self) -> None:
        """Wait until every shard accepts commands."""
        while any(shard.machine is None for shard in self.shards.values()):  # noqa: ASYNC110  # no event for tests
            await asyncio.sleep(0.01)

    def number(self, key: str = KEY) -> int:
        return partition_of(key, TOPIC.partitions)

    def partition(self, key: str = KEY) -> Leadership:
        return self.partitions.of(TOPIC.name)[self.number(key)]

    def machine(self, key: str = KEY) -> ToyMachine:
        machine = self.shards[self.number(key)].machine
        assert isinstance(machine, ToyMachine)
        return machine

    def ask(self, command: ToyCommand, key: str = "") -> Asked:
        return Asked(partial(self.toys.ask, key or getattr(command, "key", KEY), command))

    async def put(self, value: str, key: str = KEY, ttl_ms: int = -1) -> ErrorCode:
        return (await self.ask(Put(key, value, ttl_ms)).answer()).error

    async def get(self, key: str = KEY) -> str | None:
        answer = await self.ask(Get(key)).answer()
        assert answer.error is ErrorCode.NONE
        return answer.value


async def replayed(partition: Leadership) -> ToyMachine:
    """Return a machine that has replayed the log of a partition."""
    machine = ToyMachine()
    for record in await read_all(partition):
        assert record.key is not None
        try:
            machine.replay(LogRecord(record.key, record.value))
        except MillstreamError:
            continue
    return machine


def run_toys(
    story: Callable[[ToySite], Awaitable[None]], *, seed: int = 1, policy: FlushPolicy = FlushPolicy.ALWAYS
) -> None:
    """Run a story with a broker, and stop the broker at the end."""
    loop = SimulatedLoop()
    site = ToySite(loop, seed, policy)

    async def whole() -> None:
        await site.start()
        await story(site)
        site.disk.flush_error_chance = site.disk.write_error_chance = 0.0
        site.disk.is_full = False
        await site.stop()

    try:
        loop.run_until_complete(whole())
        assert loop.failures == []
    finally:
        loop.end()
