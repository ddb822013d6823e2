"""Checks that simulated machines have separate disks, clocks and processes on a shared network and loop."""

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from millstream.testing.simulated.disk import SimulatedDisk
from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.machine import SimulatedMachine, SimulatedMachines
from millstream.testing.simulated.network import Direction
from millstream.testing.simulated.process import SimulatedProcess
from millstream.testing.simulated.process_owner import ProcessCrashed


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    loop = SimulatedLoop()
    yield loop
    loop.end()
    assert loop.failures == []


class Counter:
    """Append a byte to the file every second of the clock, and flush after every second byte."""

    def __init__(self, machine: SimulatedMachine, name: str = "counter") -> None:
        self.process = machine.spawn(name)
        self.path = f"/{name}"
        self.count = 0
        self.process.create_task(self._run(self.process), name=name)

    async def _run(self, process: SimulatedProcess) -> None:
        file = process.disk.open(self.path, create=True)
        process.disk.flush_directory("/")
        while True:
            await asyncio.sleep(1)
            file.write(b"x", self.count)
            self.count += 1
            if self.count % 2 == 0:
                file.flush()


def add_machines(loop: SimulatedLoop, *hosts: str, seed: int = 1) -> list[SimulatedMachine]:
    machines = SimulatedMachines(loop, Random(seed))
    return [machines.add(host) for host in hosts]


def test_processes_of_several_machines_run_on_separate_disks(loop: SimulatedLoop) -> None:
    async def main() -> None:
        counters = [Counter(machine) for machine in add_machines(loop, "a", "b", "c")]
        await asyncio.sleep(10.5)
        assert [counter.count for counter in counters] == [10, 10, 10]

    loop.run_until_complete(main())


def test_machines_have_unique_host_names(loop: SimulatedLoop) -> None:
    machines = SimulatedMachines(loop, Random(1))
    first, second = machines.add("a"), machines.add("b")
    assert (machines["a"], machines["b"], list(machines)) == (first, second, [first, second])
    with pytest.raises(AssertionError, match="already"):
        machines.add("a")


def test_each_machine_has_clocks_with_an_offset_and_a_rate(loop: SimulatedLoop) -> None:
    machines = SimulatedMachines(loop, Random(1))
    true, fast = machines.add("true"), machines.add("fast", rate=1.1, wall_offset_ms=500, monotonic_start_s=7.0)

    async def main() -> None:
        counters = [Counter(true), Counter(fast)]
        assert fast.clock.wall_ms() - true.clock.wall_ms() == 500
        await asyncio.sleep(100.5)
        assert fast.clock.wall_ms() - true.clock.wall_ms() == pytest.approx(500 + 10_050, abs=2)
        assert fast.clock.monotonic_s() == pytest.approx(7 + 110.55)
        assert [counter.count for counter in counters] == [100, 110]
        assert counters[1].process.call(loop.time) == fast.clock.monotonic_s()
        fast.clock.jump_ms(-3_600_000)
        await asyncio.sleep(10)
        assert [counter.count for counter in counters] == [110, 121], "timers do not follow the wall clock"

    loop.run_until_complete(main())


def test_a_paused_process_stops_while_others_on_its_machine_continue(loop: SimulatedLoop) -> None:
    async def main() -> None:
        (machine,) = add_machines(loop, "a")
        paused, other = Counter(machine, "paused"), Counter(machine, "other")
        await asyncio.sleep(5.5)
        paused.process.pause()
        await asyncio.sleep(10)
        assert (paused.count, other.count) == (5, 15)
        paused.process.resume()
        await asyncio.sleep(5)
        assert (paused.count, other.count) == (10, 20), "one tick was late, the next ones come a second apart"

    loop.run_until_complete(main())


def test_a_power_loss_ends_all_processes_and_loses_unflushed_bytes(loop: SimulatedLoop) -> None:
    async def main() -> None:
        machine, other = add_machines(loop, "a", "b")
        counters = [Counter(machine, "first"), Counter(machine, "second"), Counter(other)]
        ends: list[bool] = []
        machine.spawn("third", ends.append)
        await asyncio.sleep(5.5)
        machine.power_loss()
        assert (machine.processes, len(other.processes), ends) == ([], 1, [True])
        assert all(counter.process.ended.done() for counter in counters[:2])
        await asyncio.sleep(5)
        assert [counter.count for counter in counters] == [5, 5, 10]
        assert {machine.disk.contents("/first"), machine.disk.contents("/second")} <= {b"x" * 4, b"x" * 5}

    loop.run_until_complete(main())


def test_the_page_cache_and_other_processes_survive_a_kill(loop: SimulatedLoop) -> None:
    async def main() -> None:
        (machine,) = add_machines(loop, "a")
        counter, other = Counter(machine, "first"), Counter(machine, "second")
        await asyncio.sleep(5.5)
        machine.kill(counter.process)
        machine.kill(counter.process)
        assert machine.processes == [other.process]
        assert machine.disk.contents("/first") == b"x" * 5
        with pytest.raises(ProcessCrashed):
            counter.process.disk.open("/first")

    loop.run_until_complete(main())


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_process_crashes_at_a_planned_change_of_the_disk(loop: SimulatedLoop, power_loss: bool) -> None:
    async def main() -> None:
        (machine,) = add_machines(loop, "a")
        counter, other = Counter(machine, "first"), Counter(machine, "second")
        machine.crash_in_write(counter.process, 6, power_loss=power_loss)
        await asyncio.sleep(20)
        assert not counter.process.alive
        assert counter.count in (2, 3)
        assert other.process.alive is not power_loss

    loop.run_until_complete(main())


def test_a_disk_is_replaced_only_while_no_process_is_alive(loop: SimulatedLoop) -> None:
    async def main() -> None:
        (machine,) = add_machines(loop, "a")
        counter = Counter(machine)
        await asyncio.sleep(4.5)
        snapshot = machine.disk.snapshot()
        await asyncio.sleep(4)
        with pytest.raises(AssertionError, match="still runs a counter"):
            machine.lose_disk()
        machine.kill(counter.process)
        machine.roll_back_disk(snapshot)
        assert machine.disk.contents("/counter") == b"x" * 4
        machine.lose_disk()
        assert machine.disk.list("/") == []

    loop.run_until_complete(main())


def test_a_killed_process_keeps_the_lock_that_its_successor_took(loop: SimulatedLoop) -> None:
    (machine,) = add_machines(loop, "a")
    first, second = machine.spawn("first"), machine.spawn("second")
    first.disk.lock("/lock").close()
    second.disk.lock("/lock")
    machine.kill(first)
    assert machine.disk.locks == {"/lock"}


def test_a_process_whose_end_nobody_awaits_any_more_can_be_killed(loop: SimulatedLoop) -> None:
    async def main() -> None:
        (machine,) = add_machines(loop, "a")
        process = machine.spawn("server")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.ended, 1)
        machine.kill(process)
        assert machine.processes == []

    loop.run_until_complete(main())


@pytest.mark.parametrize("reboots", [False, True])
def test_a_rolled_back_disk_may_keep_the_boot_id(loop: SimulatedLoop, reboots: bool) -> None:
    (machine,) = add_machines(loop, "a")
    boot_id = machine.disk.boot_id()
    machine.roll_back_disk(machine.disk.snapshot(), reboots=reboots)
    assert (machine.disk.boot_id() != boot_id) == reboots


def test_bits_flip_only_where_memory_and_stable_storage_agree() -> None:
    for seed in range(50):
        disk = SimulatedDisk(Random(seed))
        file = disk.open("/file", create=True)
        file.write(b"a" * 1_000, 0)
        file.flush()
        file.write(b"b" * 1_000, 500)
        disk.flush_error_chance = 1.0
        with pytest.raises(OSError, match="simulated"):
            file.flush()
        disk.flush_error_chance = 0.0
        file.write(b"c" * 10, 2_000)
        file.flush()
        disk.flush_directory("/")
        before = disk.contents("/file")
        assert disk.flip_random_bit(Random(seed)) == "/file"
        changed = [at for at, (old, new) in enumerate(zip(before, disk.contents("/file"), strict=True)) if old != new]
        assert changed[0] < 500, "the bytes behind are in doubt"


def test_a_bit_flips_under_a_process_that_reads_it(loop: SimulatedLoop) -> None:
    async def main() -> None:
        (machine,) = add_machines(loop, "a")
        assert machine.flip_bit() is None
        counter = Counter(machine)
        await asyncio.sleep(4.5)
        assert machine.flip_bit(lambda path: path == counter.path) == counter.path
        content = counter.process.disk.open(counter.path).read(4, position=0)
        assert sum((byte ^ ord("x")).bit_count() for byte in content) == 1

    loop.run_until_complete(main())


class Gossip(asyncio.Protocol):
    """Sends its own name on a new connection, and records the names that it receives."""

    def __init__(self, host: str, heard: set[str]) -> None:
        self._host = host
        self._heard = heard

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._host.encode())
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._heard.update(data.decode())


def test_a_block_separates_only_the_named_machines(loop: SimulatedLoop) -> None:
    machines = SimulatedMachines(loop, Random(3))
    heard: dict[str, set[str]] = {host: set() for host in "abc"}

    async def serve(process: SimulatedProcess, host: str) -> None:
        await process.network.listen(lambda: Gossip(host, heard[host]), host, 1)
        await asyncio.sleep(1)
        for other in sorted(set("abc") - {host}):
            try:
                await process.network.connect(lambda: Gossip(host, heard[host]), other, 1)
            except TimeoutError:
                heard[host].add(f"no {other}")

    async def main() -> None:
        machines.network.block("a", "b", Direction.OUTGOING)
        for host in "abc":
            process = machines.add(host).spawn("gossip")
            process.create_task(serve(process, host))
        await asyncio.sleep(60)
        assert heard == {"a": {"c", "no b"}, "b": {"c", "no a"}, "c": {"a", "b"}}

    loop.run_until_complete(main())


def test_each_machine_follows_from_the_seed_independently() -> None:
    def contents(seed: int, *hosts: str) -> list[bytes]:
        loop = SimulatedLoop()
        machines = add_machines(loop, *hosts, seed=seed)
        for machine in machines:
            file = machine.disk.open("/file", create=True)
            machine.disk.flush_directory("/")
            file.write(bytes(range(256)) * 20, 0)
            machine.power_loss()
        loop.end()
        return [machine.disk.contents("/file") for machine in machines]

    first = contents(1, "a", "b", "c")
    assert first == contents(1, "a", "b", "c")
    assert first[0] == contents(1, "a")[0]
    assert len({*first, *contents(2, "a", "b", "c")}) > 2
