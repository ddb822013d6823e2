"""Lists compared requests about topics and their settings."""

from typing import Any

from interop.compared.cases import Case, case
from interop.compared.world import PLAIN, UNKNOWN_ID

TOO_LONG = "x" * 250
FIT = {"num_partitions": 1, "replication_factor": 1}
NEW = {"timeout_ms": 10_000, "validate_only": True}


def _create(name: str, *topics: dict[str, Any], **others: Any) -> Case:
    return case(f"create {name}", "CreateTopics", 7, **NEW | {"topics": list(topics)} | others)


def _one(topic: str, **others: Any) -> dict[str, Any]:
    return {"name": topic} | FIT | others


def _setting(setting: str, value: str | None) -> dict[str, Any]:
    return _one("new", configs=[{"name": setting, "value": value}])


CREATED = [
    _create("nothing"),
    _create("a valid topic", _one("new")),
    _create("a topic without a name", _one("")),
    _create("a dot", _one(".")),
    _create("two dots", _one("..")),
    _create("a name with a space", _one("a b")),
    _create("a name that is too long", _one(TOO_LONG)),
    _create("the longest name", _one("x" * 249)),
    _create("a name that collides with another", _one("pla.in"), _one("pla_in")),
    _create("a topic that exists", _one(PLAIN)),
    _create("the same topic twice", _one("new"), _one("new")),
    _create("no partitions", _one("new", num_partitions=0)),
    _create("less than no partitions", _one("new", num_partitions=-2)),
    _create("partitions by default", _one("new", num_partitions=-1, replication_factor=-1)),
    _create("no replicas", _one("new", replication_factor=0)),
    _create("less than no replicas", _one("new", replication_factor=-2)),
    _create("more replicas than brokers", _one("new", replication_factor=2)),
    _create("good and bad topics together", _one("new"), _one("a b"), _one(PLAIN)),
    _create("an unknown setting", _setting("no.such.setting", "1")),
    _create("a setting without a value", _setting("retention.ms", None)),
    _create("a setting that is no number", _setting("retention.ms", "soon")),
    _create("a setting that is too small", _setting("retention.ms", "-2")),
    _create("a setting that is too large", _setting("segment.bytes", "99999999999")),
    _create("a segment that is too small", _setting("segment.bytes", "1")),
    _create("an unknown policy", _setting("cleanup.policy", "burn")),
    _create("two policies", _setting("cleanup.policy", "compact,delete")),
    _create("no policy", _setting("cleanup.policy", "")),
    _create("a policy and an empty one", _setting("cleanup.policy", "compact,")),
    _create("two empty policies", _setting("cleanup.policy", " , ")),
    _create("an unknown compression", _setting("compression.type", "rar")),
    _create("an unknown kind of time stamps", _setting("message.timestamp.type", "Never")),
    _create("something neither true nor false", _setting("preallocate", "perhaps")),
    _create("a ratio beyond one", _setting("min.cleanable.dirty.ratio", "1.5")),
    _create("no in-sync replicas", _setting("min.insync.replicas", "0")),
    _create("a negative message size", _setting("max.message.bytes", "-1")),
    _create("one setting twice", _one("new", configs=[{"name": "retention.ms", "value": v} for v in ("1000", "2000")])),
    _create("assigned partitions", _assigned := _one("new", num_partitions=-1, replication_factor=-1)),
    _create("assigned and counted partitions", _one("new", assignments=[{"partition_index": 0, "broker_ids": [1]}])),
    _create(
        "partitions assigned to a broker that is not there",
        _assigned | {"assignments": [{"partition_index": 0, "broker_ids": [99]}]},
    ),
    _create(
        "partitions assigned with a gap",
        _assigned | {"assignments": [{"partition_index": 1, "broker_ids": [1]}]},
    ),
    _create(
        "a partition assigned twice",
        _assigned | {"assignments": [{"partition_index": 0, "broker_ids": [1]}] * 2},
    ),
    _create(
        "a partition assigned to the same broker twice",
        _assigned | {"assignments": [{"partition_index": 0, "broker_ids": [1, 1]}]},
    ),
    _create(
        "a partition assigned to nobody",
        _assigned | {"assignments": [{"partition_index": 0, "broker_ids": []}]},
    ),
]


def _grow(name: str, topic: str, count: int, assignments: list[dict[str, Any]] | None = None) -> Case:
    row = {"name": topic, "count": count, "assignments": assignments}
    return case(f"grow {name}", "CreatePartitions", 3, topics=[row], **NEW)


GROWN = [
    case("grow nothing", "CreatePartitions", 3, topics=[], **NEW),
    _grow("a topic", PLAIN, 3),
    _grow("a topic that is not there", "missing", 3),
    _grow("a topic to what it has", PLAIN, 2),
    _grow("a topic to less", PLAIN, 1),
    _grow("a topic to nothing", PLAIN, 0),
    _grow("a topic to less than nothing", PLAIN, -1),
    _grow("a name that cannot be", "a b", 2),
    _grow("a topic with too few assignments", PLAIN, 4, [{"broker_ids": [1]}]),
    _grow("a topic to a broker that is not there", PLAIN, 3, [{"broker_ids": [99]}]),
    _grow("a topic with an assignment", PLAIN, 3, [{"broker_ids": [1]}]),
    case(
        "grow one topic twice",
        "CreatePartitions",
        3,
        topics=[{"name": PLAIN, "count": 3, "assignments": None}] * 2,
        **NEW,
    ),
]

DELETED = [
    case("delete nothing", "DeleteTopics", 6, topics=[], timeout_ms=10_000),
    case("delete a topic that is not there", "DeleteTopics", 6, topics=[{"name": "missing"}], timeout_ms=10_000),
    case("delete a name that cannot be", "DeleteTopics", 6, topics=[{"name": "a b"}], timeout_ms=10_000),
    case("delete an empty name", "DeleteTopics", 6, topics=[{"name": ""}], timeout_ms=10_000),
    case(
        "delete an unknown id",
        "DeleteTopics",
        6,
        topics=[{"name": None, "topic_id": UNKNOWN_ID}],
        timeout_ms=10_000,
    ),
    case("delete neither name nor id", "DeleteTopics", 6, topics=[{"name": None}], timeout_ms=10_000),
    case("delete a topic twice that is not there", "DeleteTopics", 6, topics=[{"name": "no"}] * 2, timeout_ms=10_000),
    case("delete by name in an old version", "DeleteTopics", 3, topic_names=["missing", "a b"], timeout_ms=10_000),
]


def _metadata(name: str, *topics: dict[str, Any], version: int = 12, create: bool = False) -> Case:
    return case(f"metadata of {name}", "Metadata", version, topics=list(topics), allow_auto_topic_creation=create)


METADATA = [
    _metadata("a topic that is not there", {"name": "missing"}),
    _metadata("a topic that is made by asking", {"name": "made-by-asking"}, create=True),
    _metadata("a name that cannot be", {"name": "a b"}, {"name": PLAIN}),
    _metadata("a name that cannot be made", {"name": "a b"}, create=True),
    _metadata("an empty name", {"name": ""}),
    _metadata("a name that is too long", {"name": TOO_LONG}),
    _metadata("no topics"),
    _metadata("an unknown id", {"name": None, "topic_id": UNKNOWN_ID}),
    _metadata("one topic twice", {"name": "missing"}, {"name": "missing"}),
    _metadata("a name that cannot be, in an old version", {"name": "a b"}, {"name": PLAIN}, version=4),
    case("partitions of a topic that is not there", "DescribeTopicPartitions", 0, topics=[{"name": "missing"}]),
    case("partitions of a name that cannot be", "DescribeTopicPartitions", 0, topics=[{"name": "a b"}]),
    case(
        "partitions after a place that is not there",
        "DescribeTopicPartitions",
        0,
        topics=[{"name": PLAIN}],
        cursor={"topic_name": "zzz", "partition_index": 0},
    ),
    case(
        "partitions after a negative place",
        "DescribeTopicPartitions",
        0,
        topics=[{"name": PLAIN}],
        cursor={"topic_name": PLAIN, "partition_index": -1},
    ),
    case(
        "no more than no partitions", "DescribeTopicPartitions", 0, topics=[{"name": PLAIN}], response_partition_limit=0
    ),
]
