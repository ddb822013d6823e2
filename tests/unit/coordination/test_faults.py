"""Tests shards under random faults: each command is answered once, and the state equals the log."""

import asyncio
from collections import defaultdict
from functools import partial

from builders.coordination.site import TOPIC, Asked, ToySite, replayed, run_toys
from builders.coordination.toy_machine import Get, Put, ToyAnswer, ToyMachine, Wait
from builders.loops import for_each
from millstream.model.errors import ErrorCode
from millstream.storage.store import FlushPolicy

KEYS = [f"key-{number}" for number in range(6)]


class Run:
    """Sends random commands under random faults, and checks each answer."""

    def __init__(self, site: ToySite) -> None:
        self.site = site
        self.random = site.random
        self.asked: list[Asked] = []
        self.acknowledged: dict[str, int] = defaultdict(int)
        """Number of the latest acknowledged put of each key."""
        self._puts = 0

    def send(self) -> None:
        key = self.random.choice(KEYS)
        kind = self.random.random()
        if kind < 0.6:
            self._put(key)
        elif kind < 0.8:
            self.asked.append(self.site.ask(Get(key)))
        else:
            self.asked.append(self.site.ask(Wait(key)))
            if self.random.random() < 0.3:
                self.asked[-1].cancel()

    def _put(self, key: str) -> None:
        self._puts += 1
        number, disk = self._puts, self.site.disk

        def check(answer: ToyAnswer) -> None:
            if answer.error is ErrorCode.NONE and self.site.policy is FlushPolicy.ALWAYS:
                assert disk.holds_durably(f"{number:06}".encode()), "answers leave when the log is durable"
                self.acknowledged[key] = max(self.acknowledged[key], number)

        self.asked.append(Asked(partial(self.site.toys.ask, key, Put(key, f"{number:06}")), check))

    def turn_faults(self) -> None:
        disk = self.site.disk
        disk.flush_error_chance = self.random.choice((0.0, 0.0, 0.3))
        disk.write_error_chance = self.random.choice((0.0, 0.0, 0.3))
        disk.is_full = self.random.random() < 0.1

    def end_faults(self) -> None:
        disk = self.site.disk
        disk.flush_error_chance = disk.write_error_chance = 0.0
        disk.is_full = False

    async def move(self) -> None:
        """Another broker leads a partition for a moment."""
        number = self.random.randrange(TOPIC.partitions)
        await self.site.move_away(number)
        await asyncio.sleep(0.1 * self.random.random())
        await self.site.move_back(number)

    async def crash(self) -> None:
        """Loses power, and starts again. Answers that the old broker sends while it ends are not counted."""
        received = dict(self.acknowledged)
        await self.site.restart(crashed=True)
        self.acknowledged = defaultdict(int, received)

    async def check_state(self) -> None:
        """Checks, after the faults have ended, that each machine equals its log and that the log has every acknowledged
        put."""
        await self.site.loaded()
        # A command on each shard detects a truncation that happened between two steps.
        for number in range(TOPIC.partitions):
            key = next(key for key in map(str, range(100)) if self.site.number(key) == number)
            while await self.site.put("probe", key) is not ErrorCode.NONE:
                await self.site.loaded()
        for number, partition in enumerate(self.site.partitions.of(TOPIC.name)):
            machine, stored = self.site.shards[number].machine, await replayed(partition)
            assert isinstance(machine, ToyMachine)
            assert machine.values == stored.values
            for key in (key for key in KEYS if self.site.number(key) == number):
                assert int(stored.values.get(key, "0")) >= self.acknowledged[key]


def play(seed: int, policy: FlushPolicy) -> None:
    # Under INTERVAL, the log is flushed once a second.
    pause_s = 0.02 if policy is FlushPolicy.ALWAYS else 1.0

    async def story(site: ToySite) -> None:
        run = Run(site)
        await site.toys.ensure()
        for _ in range(6):
            for _ in range(40):
                run.send()
                if run.random.random() < 0.3:
                    await asyncio.sleep(pause_s * run.random.random())
                if run.random.random() < 0.1:
                    run.turn_faults()
                if run.random.random() < 0.05:
                    await run.move()
            run.end_faults()
            if policy is FlushPolicy.ALWAYS and run.random.random() < 0.5:
                await run.crash()
            await run.check_state()
        for asked in run.asked:
            asked.cancel()
        assert [len(asked.answers) for asked in run.asked] == [1] * len(run.asked)

    run_toys(story, seed=seed, policy=policy)


@for_each("seed", range(20))
def test_nothing_acknowledged_is_lost_and_the_state_equals_the_replayed_log(seed: int) -> None:
    play(seed, FlushPolicy.ALWAYS)


@for_each("seed", range(10))
def test_the_state_equals_the_replayed_log_after_unacknowledged_flushes_fail(seed: int) -> None:
    play(seed, FlushPolicy.INTERVAL)
