"""Defines what grows, and the work whose cost must not grow with it.

Each case prepares one broker with a given amount and returns kinds of work to measure. The growth bench runs them on a
broker with little and on one with much.
"""

import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from random import Random

from bench.asking import Asking, check
from bench.driver import Driver, batch_file

from millstream.wire.schema_readers import Fields

RECORDS = 10
"""Messages in a measured batch: few, so that the cost per request dominates."""

STORED_RECORDS = 100
"""Messages in a stored batch of 10 kB, so that the index of the stored data is as long as in real logs."""

SIZE = 100
FETCH_BYTES = 65_536
SESSION_MS = 1_800_000
"""Session timeout, longer than any run: members need not send heartbeats while others are measured."""

PIPELINED = 50
READ_THROUGH_BYTES = 1_048_576
COMMIT_VERSION = 5
HEARTBEAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class GrowthScale:
    """The amounts of a case, and how much work a measurement does."""

    messages: tuple[int, int]
    partitions: tuple[int, int]
    connections: tuple[int, int]
    groups: tuple[int, int]
    requests: int
    """Number of batches that a measurement writes."""
    read_messages: int
    """Number of messages that a measurement reads."""
    asked: int
    """Number of requests of other kinds that a measurement sends."""
    rest_s: float
    """Idle time over which a broker's cost at rest is measured."""
    settles: bool = True
    """True if prepared data is flushed to disk before the measurements."""


FULL = GrowthScale((1_000_000, 50_000_000), (1, 1_000), (0, 5_000), (1, 1_000), 20_000, 1_000_000, 4_000, 31)
QUICK = GrowthScale((200_000, 5_000_000), (1, 200), (0, 1_000), (1, 100), 5_000, 200_000, 500, 5)
TINY = GrowthScale((10_000, 50_000), (1, 10), (0, 20), (1, 5), 50, 10_000, 50, 0.1, settles=False)

Work = Callable[[], int]
"""Does a fixed amount of work and returns the number of messages or requests."""

Works = Mapping[str, Work]


@dataclass(frozen=True, slots=True)
class Member:
    """Requests of the only member of a group."""

    commit: Fields
    heartbeat: Fields


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that grows, such as the number of partitions."""

    name: str
    amounts: Callable[[GrowthScale], tuple[int, int]]
    prepare: Callable[[Driver, int, GrowthScale], AbstractContextManager[Works]]


@contextmanager
def long_log(driver: Driver, messages: int, scale: GrowthScale) -> Iterator[Works]:
    with driver.topic() as topic:
        _store(driver, topic, messages)
        end = messages // STORED_RECORDS * STORED_RECORDS
        with closing(Asking(driver.peer.port)) as asking:
            yield {
                "produce at the end": _producing(driver, topic, scale),
                "consume at the beginning": _consuming(driver, topic, scale),
                "consume near the end": _consuming(driver, topic, scale, from_offset=max(0, end - scale.read_messages)),
                "read a batch anywhere": _reading(driver, asking, topic, end, scale),
            }


@contextmanager
def many_partitions(driver: Driver, partitions: int, scale: GrowthScale) -> Iterator[Works]:
    with driver.topics(2, partitions) as (topic, spread):
        _store(driver, topic, scale.read_messages)
        _store(driver, spread, scale.read_messages, partitions)
        yield {
            "produce to each in turn": _producing(driver, topic, scale, partitions=partitions),
            "consume one of them": _consuming(driver, topic, scale),
            "consume all of them": _consuming(driver, spread, scale, partitions=partitions),
        }


@contextmanager
def idle_connections(driver: Driver, connections: int, scale: GrowthScale) -> Iterator[Works]:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    idle: list[Asking] = []
    try:
        for _ in range(connections):
            idle.append(Asking(driver.peer.port))
            idle[-1].ask("ApiVersions", 0, {})
        with driver.topic() as topic:
            _store(driver, topic, scale.read_messages)
            yield {"produce": _producing(driver, topic, scale), "consume": _consuming(driver, topic, scale)}
    finally:
        for each in idle:
            each.close()


@contextmanager
def many_groups(driver: Driver, groups: int, scale: GrowthScale) -> Iterator[Works]:
    """Prepares groups with one silent member and one committed offset each."""
    with driver.topic() as topic, closing(Asking(driver.peer.port)) as asking:
        members: list[Member] = []
        for first in range(0, groups, PIPELINED):
            members += _join(asking, topic, range(first, min(first + PIPELINED, groups)))
        yield {
            "produce": _producing(driver, topic, scale),
            "commit an offset in each in turn": _asking_in_turn(
                scale, [member.commit for member in members], partial(_commit_all, asking)
            ),
            "heartbeat in each in turn": _asking_in_turn(
                scale, [member.heartbeat for member in members], partial(_heartbeat_all, asking)
            ),
        }


CASES = (
    Case("messages in the log", lambda scale: scale.messages, long_log),
    Case("partitions", lambda scale: scale.partitions, many_partitions),
    Case("idle connections", lambda scale: scale.connections, idle_connections),
    Case("groups", lambda scale: scale.groups, many_groups),
)


def _store(driver: Driver, topic: str, messages: int, partitions: int = 1) -> None:
    """Fills the partitions in turn."""
    options = {"batch": batch_file(STORED_RECORDS, SIZE), "records": STORED_RECORDS, "partitions": partitions}
    driver.raw("produce", [topic], settled=False, requests=max(1, messages // STORED_RECORDS), **options)


def _producing(driver: Driver, topic: str, scale: GrowthScale, partitions: int = 1) -> Work:
    batch = batch_file(RECORDS, SIZE)

    def work() -> int:
        return driver.raw(
            "produce",
            [topic],
            settled=False,
            partitions=partitions,
            batch=batch,
            records=RECORDS,
            requests=scale.requests,
        ).messages

    return work


def _consuming(driver: Driver, topic: str, scale: GrowthScale, from_offset: int = 0, partitions: int = 1) -> Work:
    def work() -> int:
        return driver.raw(
            "consume",
            [topic],
            settled=False,
            partitions=partitions,
            messages=scale.read_messages,
            from_offset=from_offset,
            fetch_bytes=FETCH_BYTES,
        ).messages

    return work


def _reading(driver: Driver, asking: Asking, topic: str, end: int, scale: GrowthScale) -> Work:
    """Returns work that reads single batches at random offsets that are not read otherwise, all from memory."""
    random = Random(7)

    def work() -> int:
        _read_through(driver.peer.directory)
        done = 0
        while done < scale.asked:
            offsets = [random.randrange(end) for _ in range(PIPELINED)]
            if not all(asking.read_all(topic, offsets, max_bytes=1)):
                raise RuntimeError("a read returned no messages")
            done += len(offsets)
        return done

    return work


def _read_through(directory: Path) -> None:
    """Reads all logs, so that they are in the page cache.

    The kernel may evict pages that were not accessed for a while, more of a long log than of a short one. A read from
    disk costs several times as much, which is not to be measured.
    """
    room = bytearray(READ_THROUGH_BYTES)
    for path in directory.rglob("*.log"):
        with path.open("rb", buffering=0) as file:
            while file.readinto(room):
                pass


def _asking_in_turn(scale: GrowthScale, requests: Sequence[Fields], ask: Callable[[Sequence[Fields]], None]) -> Work:
    turn = cycle(requests)

    def work() -> int:
        done = 0
        while done < scale.asked:
            ask([next(turn) for _ in range(PIPELINED)])
            done += PIPELINED
        return done

    return work


def _commit_all(asking: Asking, commits: Sequence[Fields]) -> None:
    for committed in asking.ask_all("OffsetCommit", COMMIT_VERSION, commits):
        check(committed["topics"][0]["partitions"][0], "a commit")


def _heartbeat_all(asking: Asking, heartbeats: Sequence[Fields]) -> None:
    for answer in asking.ask_all("Heartbeat", HEARTBEAT_VERSION, heartbeats):
        check(answer, "a heartbeat")


def _join(asking: Asking, topic: str, numbers: range) -> list[Member]:
    """Creates groups of one member each, and commits an offset in each."""
    joins = [
        {
            "group_id": f"group-{number}",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": SESSION_MS,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        for number in numbers
    ]
    offset = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
    topics = [{"name": topic, "partitions": [offset]}]
    syncs, members = [], []
    for join, joined in zip(joins, asking.ask_all("JoinGroup", 2, joins), strict=True):
        check(joined, "joining a group")
        member, generation = joined["member_id"], joined["generation_id"]
        known = {"group_id": join["group_id"], "member_id": member}
        syncs.append({**known, "generation_id": generation, "assignments": [{"member_id": member, "assignment": b""}]})
        commit = {**known, "generation_id_or_member_epoch": generation, "topics": topics}
        members.append(Member(commit, {**known, "generation_id": generation}))
    for synced in asking.ask_all("SyncGroup", 1, syncs):
        check(synced, "the group's assignment")
    _commit_all(asking, [member.commit for member in members])
    return members
