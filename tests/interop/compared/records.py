"""Lists compared requests about messages and offsets."""

from typing import Any

from builders.batches import batch, damaged
from interop.compared.cases import Case, case
from interop.compared.world import COMPACTED, KEPT, PLAIN, SMALL

EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3


def _produce(name: str, topic: str, records: bytes, *, partition: int = 0, acks: int = -1) -> Case:
    rows = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
    return case(f"produce {name}", "Produce", 9, acks=acks, timeout_ms=10_000, topic_data=rows)


GOOD = bytes(batch(b"good", keys=[b"key"]))

PRODUCED = [
    case("produce nothing", "Produce", 9, acks=-1, timeout_ms=10_000, topic_data=[]),
    _produce("to a partition that is not there", PLAIN, GOOD, partition=9),
    _produce("to a negative partition", PLAIN, GOOD, partition=-1),
    _produce("to a name that cannot be", "a b", GOOD),
    _produce("to an empty name", "", GOOD),
    _produce("with two acknowledgements", PLAIN, GOOD, acks=2),
    _produce("with less than all acknowledgements", PLAIN, GOOD, acks=-2),
    # Kafka does not answer a Produce request with null records.
    _produce("no bytes", PLAIN, b""),
    _produce("a damaged batch", PLAIN, bytes(damaged(bytearray(GOOD)))),
    _produce("half a batch", PLAIN, GOOD[:-3]),
    _produce("half a header", PLAIN, GOOD[:30]),
    _produce("two batches", PLAIN, GOOD + GOOD),
    _produce("what is no batch", PLAIN, b"x" * 100),
    _produce("an unknown format", PLAIN, GOOD[:16] + b"\x07" + GOOD[17:]),
    _produce("an old format", PLAIN, GOOD[:16] + b"\x01" + GOOD[17:]),
    _produce("more than the topic takes", SMALL, bytes(batch(b"x" * 2_000))),
    _produce("without a key where one is needed", COMPACTED, bytes(batch(b"value"))),
    _produce("with a key where one is needed", COMPACTED, bytes(batch(b"value", keys=[b"key"]))),
    _produce(
        "out of order",
        PLAIN,
        bytes(batch(b"value", producer_id=4_242, producer_epoch=0, base_sequence=7)),
    ),
    _produce(
        "with a negative epoch",
        PLAIN,
        bytes(batch(b"value", producer_id=4_243, producer_epoch=-1, base_sequence=0)),
    ),
    case(
        "produce to one topic twice",
        "Produce",
        9,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[{"name": "a b", "partition_data": [{"index": 0, "records": GOOD}]}] * 2,
    ),
]


def _fetch(name: str, topic: str, version: int = 12, **others: Any) -> Case:
    row = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "partition_max_bytes": 1_000}
    row |= {key: value for key, value in others.items() if key in row}
    rest = {key: value for key, value in others.items() if key not in row}
    fields = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 10_000, "topics": [{"topic": topic, "partitions": [row]}]}
    return case(f"fetch {name}", "Fetch", version, **{"session_epoch": -1} | fields | rest)


FETCHED = [
    _fetch("a partition", PLAIN),
    _fetch("a topic that is not there", "missing"),
    _fetch("a name that cannot be", "a b"),
    _fetch("a partition that is not there", PLAIN, partition=9),
    _fetch("a negative partition", PLAIN, partition=-1),
    _fetch("beyond the end", PLAIN, fetch_offset=1_000_000),
    _fetch("before the beginning", PLAIN, fetch_offset=-5),
    _fetch("from the end", PLAIN, partition=1, fetch_offset=0),
    _fetch("by a newer leader", PLAIN, current_leader_epoch=99),
    _fetch("no bytes", PLAIN, partition_max_bytes=0),
    _fetch("in an unknown session", PLAIN, session_id=4_711, session_epoch=3),
    _fetch("with a negative wait", PLAIN, max_wait_ms=-1),
    _fetch("in an old version", PLAIN, version=4, fetch_offset=1_000_000),
]


def _offset(name: str, topic: str, timestamp: int, *, partition: int = 0, epoch: int = -1, version: int = 7) -> Case:
    row = {"partition_index": partition, "current_leader_epoch": epoch, "timestamp": timestamp}
    return case(f"offset {name}", "ListOffsets", version, topics=[{"name": topic, "partitions": [row]}])


def _epoch(name: str, topic: str, partition: int, leader: int, asked: int) -> Case:
    row = {"partition": partition, "current_leader_epoch": leader, "leader_epoch": asked}
    return case(f"end of {name}", "OffsetForLeaderEpoch", 4, topics=[{"topic": topic, "partitions": [row]}])


def _trim(name: str, topic: str, partition: int, offset: int) -> Case:
    rows = [{"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}]
    return case(f"trim {name}", "DeleteRecords", 2, topics=rows, timeout_ms=10_000)


OFFSETS = [
    case("offsets of nothing", "ListOffsets", 7, topics=[]),
    _offset("of the beginning", PLAIN, EARLIEST),
    _offset("of the end", PLAIN, LATEST),
    _offset("of the newest", PLAIN, MAX_TIMESTAMP),
    _offset("of an unknown moment", PLAIN, -77),
    _offset("of the newest, in a version without it", PLAIN, MAX_TIMESTAMP, version=6),
    _offset("in a topic that is not there", "missing", LATEST),
    _offset("in a name that cannot be", "a b", LATEST),
    _offset("in a partition that is not there", PLAIN, LATEST, partition=9),
    _offset("for a newer leader", PLAIN, LATEST, epoch=99),
    _offset("of a time to come", PLAIN, 2**62),
    _epoch("an epoch", PLAIN, 0, -1, 0),
    _epoch("an epoch in a topic that is not there", "missing", 0, -1, 0),
    _epoch("an epoch in a partition that is not there", PLAIN, 9, -1, 0),
    _epoch("an epoch of a newer leader", PLAIN, 0, 99, 0),
    _epoch("a negative epoch", PLAIN, 0, -1, -5),
    _epoch("an epoch to come", PLAIN, 0, -1, 50),
    case("trim nothing", "DeleteRecords", 2, topics=[], timeout_ms=10_000),
    _trim("to the beginning", PLAIN, 0, 0),
    _trim("beyond the end", PLAIN, 0, 1_000_000),
    _trim("to a negative offset", PLAIN, 0, -5),
    _trim("a topic that is not there", "missing", 0, 0),
    _trim("a name that cannot be", "a b", 0, 0),
    _trim("a partition that is not there", PLAIN, 9, 0),
    _trim("a topic that is compacted", COMPACTED, 0, 0),
    _trim("a topic without a policy", KEPT, 0, 0),
]

PRODUCERS = [
    case("a producer's id", "InitProducerId", 4, transactional_id=None, transaction_timeout_ms=0),
    case("a producer's id for an empty name", "InitProducerId", 4, transactional_id="", transaction_timeout_ms=1_000),
    case(
        "a producer's next epoch",
        "InitProducerId",
        4,
        transactional_id=None,
        transaction_timeout_ms=0,
        producer_id=5,
        producer_epoch=-1,
    ),
]
