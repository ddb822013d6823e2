"""What grows, and the work whose cost must not grow with it.

Each case prepares one broker with a given amount and gives pieces of work to measure; the growth bench runs them on a
broker with little and on one with much.
"""

import resource
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from bench.asking import Asking, check
from bench.driver import Driver, batch_file

RECORDS = 10
"""Messages in a measured batch: small, so that what is paid per request is most of the cost."""

STORED_RECORDS = 500
SIZE = 100
FETCH_BYTES = 65_536
SESSION_MS = 1_800_000
"""Longer than anything here: members need not be heard of while others are measured."""

PIPELINED = 50
COMMIT_VERSION = 5


@dataclass(frozen=True, slots=True)
class GrowthScale:
    messages: tuple[int, int]
    partitions: tuple[int, int]
    connections: tuple[int, int]
    groups: tuple[int, int]
    requests: int
    """How many batches a measurement writes."""
    read_messages: int
    """How many messages a measurement reads."""
    commits: int
    data_bytes: int
    """What is stored before the broker is started again."""
    unsettled_bytes: int
    """What is written just before it is killed."""
    settles: bool = True
    """Whether what was prepared is on the disk before anything is measured."""


FULL = GrowthScale(
    (1_000_000, 50_000_000), (1, 1_000), (0, 5_000), (1, 1_000), 8_000, 1_000_000, 4_000, 10_000_000_000, 200_000_000
)
QUICK = GrowthScale(
    (200_000, 5_000_000), (1, 200), (0, 1_000), (1, 100), 2_000, 200_000, 500, 1_000_000_000, 50_000_000
)
TINY = GrowthScale((10_000, 50_000), (1, 10), (0, 20), (1, 5), 50, 10_000, 20, 20_000_000, 5_000_000, settles=False)

Work = Callable[[], int]
"""Does a fixed amount of work and tells how many messages, or whatever is counted, that was."""

Works = Mapping[str, Work]


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    amounts: Callable[[GrowthScale], tuple[int, int]]
    prepare: Callable[[Driver, int, GrowthScale], AbstractContextManager[Works]]


@contextmanager
def long_log(driver: Driver, messages: int, scale: GrowthScale) -> Iterator[Works]:
    with driver.topic() as topic:
        _store(driver, topic, messages)
        end = messages // STORED_RECORDS * STORED_RECORDS
        yield {
            "produce at the end": _producing(driver, topic, scale),
            "consume at the beginning": _consuming(driver, topic, scale),
            "consume near the end": _consuming(driver, topic, scale, from_offset=max(0, end - scale.read_messages)),
        }


@contextmanager
def many_partitions(driver: Driver, partitions: int, scale: GrowthScale) -> Iterator[Works]:
    with driver.topic(partitions) as topic:
        _store(driver, topic, scale.read_messages)
        yield {
            "produce to each in turn": _producing(driver, topic, scale, partitions=partitions),
            "consume one of them": _consuming(driver, topic, scale),
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
    """Each with a member, which is silent, and a committed offset."""
    with driver.topic() as topic:
        asking = Asking(driver.peer.port)
        try:
            commits = []
            for first in range(0, groups, PIPELINED):
                commits += _join(asking, topic, range(first, min(first + PIPELINED, groups)))
            yield {
                "produce": _producing(driver, topic, scale),
                "commit an offset": _committing(asking, commits[0], scale),
            }
        finally:
            asking.close()


CASES = (
    Case("messages in the log", lambda scale: scale.messages, long_log),
    Case("partitions", lambda scale: scale.partitions, many_partitions),
    Case("idle connections", lambda scale: scale.connections, idle_connections),
    Case("groups", lambda scale: scale.groups, many_groups),
)


def _store(driver: Driver, topic: str, messages: int) -> None:
    """Fill partition 0."""
    batch = batch_file(STORED_RECORDS, SIZE)
    requests = max(1, messages // STORED_RECORDS)
    driver.raw("produce", [topic], settled=False, batch=batch, records=STORED_RECORDS, requests=requests)


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


def _consuming(driver: Driver, topic: str, scale: GrowthScale, from_offset: int = 0) -> Work:
    def work() -> int:
        return driver.raw(
            "consume",
            [topic],
            settled=False,
            messages=scale.read_messages,
            from_offset=from_offset,
            fetch_bytes=FETCH_BYTES,
        ).messages

    return work


def _committing(asking: Asking, commit: dict[str, object], scale: GrowthScale) -> Work:
    def work() -> int:
        for _ in range(scale.commits // PIPELINED or 1):
            for answer in asking.ask_all("OffsetCommit", COMMIT_VERSION, [commit] * PIPELINED):
                check(answer["topics"][0]["partitions"][0], "a commit")
        return (scale.commits // PIPELINED or 1) * PIPELINED

    return work


def _join(asking: Asking, topic: str, numbers: range) -> list[dict[str, object]]:
    """Make groups of one member each, commit an offset in each; what their commits look like."""
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
    syncs, commits = [], []
    for join, joined in zip(joins, asking.ask_all("JoinGroup", 2, joins), strict=True):
        check(joined, "joining a group")
        member, generation = joined["member_id"], joined["generation_id"]
        known = {"group_id": join["group_id"], "member_id": member}
        syncs.append({**known, "generation_id": generation, "assignments": [{"member_id": member, "assignment": b""}]})
        offset = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
        topics = [{"name": topic, "partitions": [offset]}]
        commits.append({**known, "generation_id_or_member_epoch": generation, "topics": topics})
    for synced in asking.ask_all("SyncGroup", 1, syncs):
        check(synced, "the group's assignment")
    for committed in asking.ask_all("OffsetCommit", COMMIT_VERSION, commits):
        check(committed["topics"][0]["partitions"][0], "a commit")
    return commits
