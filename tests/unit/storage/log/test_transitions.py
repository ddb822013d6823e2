"""Checks that a log's offsets stay in order in all transitions, and that its listener is notified correctly."""

import ast
import asyncio
import errno
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import pytest

from builders.logs import SMALL, FlushListener, key, open_store, run
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
from millstream.records.batch import encode_batch
from millstream.records.header import read_header, stamp
from millstream.storage.cleaning.cleaning_state import CleaningState
from millstream.storage.log.flush_state import FlushState
from millstream.storage.log.log import Log
from millstream.storage.log.log_health import LogHealth
from millstream.storage.store import FlushPolicy, LogStore
from millstream.testing.simulated.disk import DiskOperation, SimulatedDisk

ROOT = Path(__file__).parents[4]
POLICIES = [FlushPolicy.ALWAYS, FlushPolicy.INTERVAL, FlushPolicy.OS]


def append(log: Log, size: int = 10) -> None:
    """Append one batch as a partition does."""
    batch = bytearray(encode_batch([b"v" * size], timestamps=1000))
    stamp(batch, base_offset=log.end_offset, leader_epoch=0)
    log.append(memoryview(batch), read_header(memoryview(batch)))


def only_refusals(error: MillstreamError) -> None:
    if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
        raise error


def refuse(disk: SimulatedDisk, kind: str, *, lose: bool = False) -> None:
    """Refuse every write or flush of a segment; with `lose`, unflushed bytes never reach the disk."""

    def before(operation: DiskOperation) -> None:
        if operation.kind == kind and operation.path.endswith(".log"):
            if lose:
                inode = disk._file(operation.path)
                inode.unflushed.clear()
                inode.content[:] = inode.durable
            raise OSError(errno.EIO, "refused", operation.path)

    disk.before = before


def test_buffered_batches_are_written_and_reported_together() -> None:
    async def check() -> None:
        store = await open_store(SimulatedDisk())
        log = await store.create(key(0), SMALL)
        append(log)
        listener = FlushListener(log)
        append(log)
        append(log)
        assert (listener.written_headers, log.written_offset, log.end_offset) == ([], 1, 3)
        await asyncio.sleep(1)
        assert ([header.base_offset for header in listener.written_headers], log.flushed_offset) == ([1, 2], 3)
        append(log, 100_000)
        assert log.written_offset == log.end_offset == 4

    run(check())


@pytest.mark.parametrize("kind", ["write", "fence", "delete"])
def test_the_flush_listener_is_notified_of_lost_buffered_batches(kind: str) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        log = await store.create(key(0), SMALL)
        append(log)
        listener = FlushListener(log)
        append(log)
        if kind == "write":
            refuse(disk, "write")
            with pytest.raises(MillstreamError):
                log.write_buffered()
        elif kind == "fence":
            log.flush_failed(OSError(errno.EIO, "refused"))
        else:
            log.deleted()
        assert listener.written_headers == []
        assert log.end_offset == log.written_offset == 1
        assert [error.code for error in listener.failures if isinstance(error, MillstreamError)] == [
            ErrorCode.KAFKA_STORAGE_ERROR
        ]

    run(check())


def append_buffered(log: Log) -> None:
    append(log)
    log.write_buffered()


TRANSITIONS: Mapping[str, Callable[[Log], object]] = {
    "append, not buffered": lambda log: append(log, 100_000),
    "append, then written": append_buffered,
    "roll": lambda log: log.roll(),
    "trim": lambda log: log.trim(Offset(2)),
    "flushed": lambda log: log.flushed(log.flush.capture()),
    "flush_failed": lambda log: log.flush_failed(OSError(errno.EIO, "refused")),
    "deleted": lambda log: log.deleted(),
}


@pytest.mark.parametrize("name", TRANSITIONS)
def test_each_log_transition_asserts_the_order_of_the_logs_offsets(name: str) -> None:
    async def check() -> None:
        store = await open_store(SimulatedDisk())
        log = await store.create(key(0), SMALL)
        for _ in range(3):
            append(log)
        await asyncio.sleep(1)
        log.flushed_offset = Offset(log.flushed_offset + 1)
        with pytest.raises(AssertionError, match="out of order"):
            TRANSITIONS[name](log)

    run(check())


def test_a_write_asserts_that_the_log_start_is_flushed() -> None:
    async def check() -> None:
        store = await open_store(SimulatedDisk())
        log = await store.create(key(0), SMALL)
        append(log)
        await asyncio.sleep(1)
        log.start_offset = Offset(log.flushed_offset + 1)
        with pytest.raises(AssertionError, match="out of order"):
            append(log, 100_000)

    run(check())


class Story:
    """Random steps on one log; the listener's reports are compared with the log."""

    def __init__(self, seed: int, policy: FlushPolicy) -> None:
        self.random = Random(seed)
        self.policy = policy
        self.disk = SimulatedDisk()
        self.acknowledged = self.truncations = 0

    async def run(self) -> None:
        store = await open_store(self.disk, policy=self.policy, random=self.random)
        log = await store.create(key(0), SMALL)
        listener = FlushListener(log)
        for _ in range(60):
            await self.step(store, log)
            assert log.start_offset <= log.flushed_offset <= log.written_offset <= log.end_offset
            assert listener.watermark.offset <= max(log.acknowledged_offset, self.acknowledged)
            assert len(listener.truncated_to) == log.truncations
            assert log.size_bytes == sum(segment.size_bytes for segment in log.segments)
        self.disk.before = None
        await asyncio.sleep(30)
        assert log.health.quarantined is None
        self.truncations = log.truncations
        append(log)
        await store.checkpoint()
        assert log.flushed_offset == log.written_offset or self.policy is FlushPolicy.OS

    async def step(self, store: LogStore, log: Log) -> None:
        step = self.random.choice(["append"] * 6 + ["wait", "checkpoint", "write", "trim", "roll", "refuse", "heal"])
        try:
            if step == "append":
                append(log, self.random.choice([1, 100, 700, 3000]))
            elif step == "wait":
                await asyncio.sleep(self.random.choice([0, 0.001, 0.1, 2]))
            elif step == "checkpoint":
                await store.checkpoint()
            elif step == "write":
                log.write_buffered()
            elif step == "trim":
                log.trim(Offset(self.random.randint(log.start_offset, log.flushed_offset)))
            elif step == "roll" and log.segments and log.segments[-1].size_bytes:
                log.roll()
            elif step == "refuse":
                kind = self.random.choice(["write", "flush"])
                refuse(self.disk, kind, lose=kind == "flush" and self.random.random() < 0.5)
            elif step == "heal":
                self.disk.before = None
        except MillstreamError as error:
            only_refusals(error)
        self.acknowledged = max(self.acknowledged, log.acknowledged_offset)


@pytest.mark.parametrize("policy", POLICIES)
def test_random_transitions_keep_the_offsets_in_order(policy: FlushPolicy) -> None:
    truncations = 0
    for seed in range(60):
        story = Story(seed, policy)
        try:
            run(story.run())
        except BaseException as error:
            raise AssertionError(f"seed {seed} fails") from error
        truncations += story.truncations
    assert truncations, "the ends of some logs were lost"


LOG_ATTRIBUTES = {"log", "_log", "segment"}


def _assigned(tree: ast.AST) -> list[str]:
    """The assignments to an attribute of a variable that is named like a log or a segment."""
    found = []
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        parts = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
        for part in parts:
            owner = part.value if isinstance(part, ast.Attribute) else None
            name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
            if name in LOG_ATTRIBUTES and isinstance(part, ast.Attribute):
                found.append(f"{part.lineno} {ast.unparse(part)}")
    return found


def test_only_the_log_package_assigns_attributes_of_a_log_or_segment() -> None:
    sources = [path for path in (ROOT / "src/millstream").rglob("*.py") if "storage/log" not in path.as_posix()]
    found = {str(path): _assigned(ast.parse(path.read_text())) for path in sources if "import Log" in path.read_text()}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "line", ["log.end_offset = 1", "self.log.end_offset += 1", "a, self._log.broken = 1, 2", "segment.pinned = None"]
)
def test_an_assignment_to_an_attribute_of_a_log_is_found(line: str) -> None:
    assert _assigned(ast.parse(line))


OWNED = {
    "flush_state": {name for name, each in vars(FlushState).items() if inspect.isfunction(each)},
    "cleaning": {"recovered", "decided", "done"},
    "health": {
        "fenced",
        "quarantine",
        "recovered_as_quarantined",
        "refused",
        "repaired",
        "stopped",
        "write_failed",
        "write_succeeded",
    },
}
"""The transitions of the parts of a log."""


def _transitions(tree: ast.AST) -> list[str]:
    """The uses of transitions of a log's parts, and of a log's listener."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        owner = node.value.attr if isinstance(node.value, ast.Attribute) else ""
        if node.attr in OWNED.get(owner, ()) or (node.attr == "_listener" and owner in {"", *LOG_ATTRIBUTES}):
            found.append(f"{node.lineno} {ast.unparse(node)}")
    return found


def test_only_the_log_package_changes_the_parts_of_a_log() -> None:
    sources = [path for path in (ROOT / "src/millstream").rglob("*.py") if "storage/log" not in path.as_posix()]
    found = {
        str(path): _transitions(ast.parse(path.read_text())) for path in sources if "import Log" in path.read_text()
    }
    assert {path: lines for path, lines in found.items() if lines} == {}
    assert all(hasattr(LogHealth, name) for name in OWNED["health"])
    assert all(hasattr(CleaningState, name) for name in OWNED["cleaning"])


@pytest.mark.parametrize(
    "line",
    [
        "log.flush_state.mark_dirty()",
        "self._log.health.quarantine('x')",
        "log._listener.flushed()",
        "log.cleaning.done()",
    ],
)
def test_a_call_that_changes_a_part_of_a_log_is_found(line: str) -> None:
    assert _transitions(ast.parse(line))
