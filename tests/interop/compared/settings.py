"""Lists compared requests about settings, and other admin requests."""

from typing import Any

from interop.compared.cases import Case, case
from interop.compared.world import PLAIN, World

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
_SESSION, _INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def _describe(name: str, kind: int, resource: str, keys: list[str] | None = None) -> Case:
    row = {"resource_type": kind, "resource_name": resource, "configuration_keys": keys}
    return case(f"describe the settings of {name}", "DescribeConfigs", 4, resources=[row])


def _change(name: str, kind: int, resource: str, *steps: tuple[str, int, str | None]) -> Case:
    configs = [{"name": setting, "config_operation": step, "value": value} for setting, step, value in steps]
    row = {"resource_type": kind, "resource_name": resource, "configs": configs}
    return case(f"change {name}", "IncrementalAlterConfigs", 1, resources=[row], validate_only=True)


def _replace(name: str, kind: int, resource: str, **settings: str | None) -> Case:
    configs = [{"name": setting.replace("_", "."), "value": value} for setting, value in settings.items()]
    row = {"resource_type": kind, "resource_name": resource, "configs": configs}
    return case(f"replace {name}", "AlterConfigs", 2, resources=[row], validate_only=True)


TOLD = [
    case("describe the settings of nothing", "DescribeConfigs", 4, resources=[]),
    _describe("a topic", TOPIC, PLAIN),
    _describe("a topic that is not there", TOPIC, "missing"),
    _describe("a name that cannot be", TOPIC, "a b"),
    _describe("an empty name", TOPIC, ""),
    _describe("a topic, unknown ones", TOPIC, PLAIN, ["no.such.setting"]),
    _describe("a topic, none of them", TOPIC, PLAIN, []),
    _describe("the broker", BROKER, "1"),
    _describe("all brokers", BROKER, ""),
    _describe("another broker", BROKER, "2"),
    _describe("a broker that is no number", BROKER, "one"),
    _describe("a group", GROUP, "some"),
    _describe("a group without a name", GROUP, ""),
    _describe("something unknown", 77, "some"),
    _describe("something of no kind", 0, "some"),
]

CHANGED = [
    case("change nothing", "IncrementalAlterConfigs", 1, resources=[], validate_only=True),
    _change("no setting", TOPIC, PLAIN),
    _change("a setting", TOPIC, PLAIN, ("retention.ms", SET, "1000")),
    _change("a topic that is not there", TOPIC, "missing", ("retention.ms", SET, "1000")),
    _change("a name that cannot be", TOPIC, "a b", ("retention.ms", SET, "1000")),
    _change("an unknown setting", TOPIC, PLAIN, ("no.such.setting", SET, "1")),
    _change("to something that is no number", TOPIC, PLAIN, ("retention.ms", SET, "soon")),
    _change("to nothing", TOPIC, PLAIN, ("retention.ms", SET, None)),
    _change("back to the default", TOPIC, PLAIN, ("retention.ms", DELETE, None)),
    _change("an unknown setting back to the default", TOPIC, PLAIN, ("no.such.setting", DELETE, None)),
    _change("to no policy", TOPIC, PLAIN, ("cleanup.policy", SET, "")),
    _change("by adding to a list", TOPIC, PLAIN, ("cleanup.policy", APPEND, "compact")),
    _change("by adding to a number", TOPIC, PLAIN, ("retention.ms", APPEND, "1")),
    _change("by taking from a list", TOPIC, PLAIN, ("cleanup.policy", SUBTRACT, "delete")),
    _change("by taking from a number", TOPIC, PLAIN, ("retention.ms", SUBTRACT, "1")),
    _change("by an unknown step", TOPIC, PLAIN, ("retention.ms", 9, "1")),
    _change("a setting twice", TOPIC, PLAIN, ("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
    _change("a group", GROUP, "some", (_SESSION, SET, "50000")),
    _change("nothing of a group", GROUP, "some"),
    _change("a group to a timeout that is too short", GROUP, "some", (_SESSION, SET, "44999")),
    _change("a group to a timeout that is too long", GROUP, "some", (_SESSION, SET, "60001")),
    _change("a group to something that is no number", GROUP, "some", (_SESSION, SET, "soon")),
    _change("a group to nothing", GROUP, "some", (_SESSION, SET, None)),
    _change("a group back to the default", GROUP, "some", (_SESSION, DELETE, None)),
    _change("a group by adding to a number", GROUP, "some", (_SESSION, APPEND, "50000")),
    _change("a group to an interval that is too long", GROUP, "some", (_INTERVAL, SET, "15001")),
    _change("an unknown setting of a group", GROUP, "some", ("no.such.setting", SET, "1")),
    _change("an unknown setting of a group back to the default", GROUP, "some", ("no.such.setting", DELETE, None)),
    _change("a setting of a group twice", GROUP, "some", (_SESSION, SET, "50000"), (_SESSION, SET, "51000")),
    _change("a group without a name", GROUP, "", (_SESSION, SET, "50000")),
    _change("something unknown", 77, "some", ("a", SET, "1")),
    _change("another broker", BROKER, "2", ("log.retention.ms", SET, "1")),
    _change("a broker that is no number", BROKER, "one", ("log.retention.ms", SET, "1")),
    case(
        "change one topic twice",
        "IncrementalAlterConfigs",
        1,
        resources=[{"resource_type": TOPIC, "resource_name": PLAIN, "configs": []}] * 2,
        validate_only=True,
    ),
    case("replace nothing", "AlterConfigs", 2, resources=[], validate_only=True),
    _replace("a setting", TOPIC, PLAIN, retention_ms="1000"),
    _replace("the settings of a topic that is not there", TOPIC, "missing", retention_ms="1000"),
    _replace("the settings of a name that cannot be", TOPIC, "a b", retention_ms="1000"),
    _replace("an unknown setting", TOPIC, PLAIN, no_such="1"),
    _replace("a setting by something that is no number", TOPIC, PLAIN, retention_ms="soon"),
    _replace("a setting by nothing", TOPIC, PLAIN, retention_ms=None),
    _replace("the settings of a group", GROUP, "some", consumer_session_timeout_ms="50000"),
    _replace("the settings of a group by an unknown one", GROUP, "some", no_such="1"),
    _replace("the settings of something unknown", 77, "some", a="1"),
]


def _reassign(name: str, topic: str, partition: int, replicas: list[int] | None) -> Case:
    row = {"name": topic, "partitions": [{"partition_index": partition, "replicas": replicas}]}
    return case(f"reassign {name}", "AlterPartitionReassignments", 0, timeout_ms=10_000, topics=[row])


def _move(name: str, topic: str, partition: int, path: str = "") -> Case:
    """Ask to move a replica to a directory, or to the one that it is in."""

    def fields(world: World) -> dict[str, Any]:
        row = {"path": path or world.data_directory(), "topics": [{"name": topic, "partitions": [partition]}]}
        return {"dirs": [row]}

    return Case(f"move {name}", "AlterReplicaLogDirs", 2, fields)


def _acl(**others: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    } | others


OTHERS = [
    case("list the resources of no kind", "ListConfigResources", 1, resource_types=[]),
    case("list the resources of an unknown kind", "ListConfigResources", 1, resource_types=[77]),
    case("list the topics with settings", "ListConfigResources", 1, resource_types=[TOPIC]),
    case("describe the cluster", "DescribeCluster", 1, endpoint_type=1),
    case("describe the controllers, of a broker", "DescribeCluster", 1, endpoint_type=2),
    case("describe the cluster by an unknown end", "DescribeCluster", 1, endpoint_type=77),
    case("sizes of all logs", "DescribeLogDirs", 4, topics=None),
    case("sizes of logs that are not there", "DescribeLogDirs", 4, topics=[{"topic": "missing", "partitions": [0]}]),
    case("sizes of no logs", "DescribeLogDirs", 4, topics=[]),
    case("producers of a partition", "DescribeProducers", 0, topics=[{"name": PLAIN, "partition_indexes": [0, 7, -1]}]),
    case("producers of no topic", "DescribeProducers", 0, topics=[{"name": "missing", "partition_indexes": [0]}]),
    case("producers of a bad name", "DescribeProducers", 0, topics=[{"name": "a b", "partition_indexes": [0]}]),
    *(
        case(
            f"elect a leader of {name}", "ElectLeaders", 2, election_type=kind, topic_partitions=rows, timeout_ms=10_000
        )
        for name, kind, rows in (
            ("a partition", 0, [{"topic": PLAIN, "partitions": [0]}]),
            ("a partition, though unclean", 1, [{"topic": PLAIN, "partitions": [0]}]),
            ("what is not there", 0, [{"topic": "missing", "partitions": [0]}, {"topic": PLAIN, "partitions": [9]}]),
        )
    ),
    case("elect by an unknown way", "ElectLeaders", 2, election_type=7, topic_partitions=None, timeout_ms=10_000),
    _reassign("to where it is", PLAIN, 0, [1]),
    _reassign("to another broker", PLAIN, 0, [2]),
    _reassign("to nobody", PLAIN, 0, []),
    _reassign("to one broker twice", PLAIN, 0, [1, 1]),
    _reassign("a topic that is not there", "missing", 0, [1]),
    _reassign("a partition that is not there", PLAIN, 9, [1]),
    _reassign("nothing under way", PLAIN, 0, None),
    case("list reassignments", "ListPartitionReassignments", 0, timeout_ms=10_000, topics=None),
    case(
        "list reassignments of nothing",
        "ListPartitionReassignments",
        0,
        timeout_ms=10_000,
        topics=[{"name": "missing", "partition_indexes": [0]}],
    ),
    _move("a replica to where it is", PLAIN, 0),
    _move("a replica to nowhere", PLAIN, 0, "/no/such/directory"),
    _move("a replica of a topic that is not there", "missing", 0),
    _move("a replica of a partition that is not there", PLAIN, 9),
    _move("a replica of a name that cannot be", "a b", 0),
    case("move nothing", "AlterReplicaLogDirs", 2, dirs=[]),
    case("describe rights", "DescribeAcls", 3, **_acl()),
    case("delete rights", "DeleteAcls", 3, filters=[_acl()]),
    case(
        "create rights",
        "CreateAcls",
        3,
        creations=[
            {
                "resource_type": 2,
                "resource_name": PLAIN,
                "resource_pattern_type": 3,
                "principal": "User:somebody",
                "host": "*",
                "operation": 3,
                "permission_type": 3,
            }
        ],
    ),
    case("describe quotas", "DescribeClientQuotas", 1, components=[], strict=False),
    case("describe the users' passwords", "DescribeUserScramCredentials", 0, users=None),
    case("describe a user's password", "DescribeUserScramCredentials", 0, users=[{"name": "somebody"}]),
]
