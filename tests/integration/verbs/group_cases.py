"""Defines the cases of groups, iterators and clusters."""

from integration.verbs.case import NUMBERS, UNKNOWN_TOPIC, Arguments, Case, no_group, no_topic
from integration.verbs.shapes import InFlight, Made, Place, Read
from integration.verbs.world import CLIENT, World
from millstream.model.errors import ErrorCode
from millstream.model.names import TopicPartition


def _committed_in_partition_1(world: World) -> Arguments:
    """A topic with two messages in partition 0, and a group that has committed an offset in partition 1 only."""
    call: Arguments = {"topic": world.topic("a", "b", partitions=2), "group": world.unused()}
    world.client.groups.commit(call["group"], {TopicPartition(call["topic"], 1): 0})
    return call


_GROUPS = (
    Case(
        "read_in_group", "from the beginning by default, and commit what was read",
        lambda w: {"topic": w.topic("a", "b"), "group": w.unused(), "count": 2}, lambda w, a: ["a", "b"],
        lambda w, a: w.committed(a["group"]) == {Place(a["topic"], 0): 2},
    ),
    Case(
        "read_in_group", "from `end`, a synonym of `latest`",
        lambda w: {"topic": w.growing_topic(), "group": w.unused(), "count": 1, "start": "end"}, lambda w, a: "new",
        lambda w, a: w.stop_putting(), seen=lambda found, _: found[0], but={"wire": NUMBERS},
    ),
    Case(
        "read_in_group", "from text that is not a position",
        lambda w: {"topic": w.topic("a"), "group": w.unused(), "count": 1, "start": "abc"},
        fails=ErrorCode.INVALID_SETTING, but={"wire": NUMBERS},
    ),
    Case(
        "list_groups", "with their states", lambda w: {"group": w.group(w.topic("a"))},
        lambda w, a: "Empty", seen=lambda found, a: found[a["group"]], only_for_us=("group",),
    ),
    Case(
        "describe_group", "without members", lambda w: {"group": w.group(w.topic("a"))}, lambda w, a: ("Empty", []),
        but={"wire": "this group is a classic one, for DescribeGroups"},
    ),
    Case("describe_group", "that does not exist", no_group, fails=ErrorCode.GROUP_ID_NOT_FOUND),
    Case(
        "delete_group", "and its offsets", lambda w: {"group": w.group(w.topic("a"))}, lambda w, a: None,
        lambda w, a: w.committed(a["group"]) == {},
    ),
    Case("delete_group", "that does not exist", no_group, fails=ErrorCode.GROUP_ID_NOT_FOUND),
    Case("delete_group", "that has members", lambda w: {"group": w.member()}, fails=ErrorCode.NON_EMPTY_GROUP),
    Case(
        "group_lag", "with a partition without a committed offset", _committed_in_partition_1,
        lambda w, a: {Place(a["topic"], 0): 2, Place(a["topic"], 1): 0}, only_for_us=("topic",),
    ),
    Case("group_lag", "that does not exist", no_group, fails=ErrorCode.GROUP_ID_NOT_FOUND),
    Case(
        "group_offsets", "that were committed", lambda w: {"group": w.group(w.topic("a"))},
        lambda w, a: w.committed(a["group"]),
    ),
    Case(
        "commit_offsets", "of a group without members",
        lambda w: {"group": w.unused(), "topic": w.topic("a", "b"), "offset": 1}, lambda w, a: None,
        lambda w, a: w.committed(a["group"]) == {Place(a["topic"], 0): 1},
    ),
    Case(
        "commit_offsets", "in an unknown topic", lambda w: {"group": w.unused(), **no_topic(w), "offset": 1},
        fails=UNKNOWN_TOPIC,
    ),
    Case(
        "commit_offsets", "while the group has members",
        lambda w: {"group": w.member(), "topic": w.topic("a"), "offset": 1}, fails=ErrorCode.NON_EMPTY_GROUP,
        but={"wire": "Kafka's protocol has UNKNOWN_MEMBER_ID for it, as for a commit of a member that left"},
    ),
    Case(
        "reset_offsets", "while the group has members",
        lambda w: {"group": w.member(), "topic": w.topic("a"), "to": "beginning"}, fails=ErrorCode.NON_EMPTY_GROUP,
    ),
    Case(
        "reset_offsets", "to the beginning",
        lambda w: {"topic": (topic := w.topic("a", "b")), "group": w.group(topic), "to": "beginning"},
        lambda w, a: {0: 0}, lambda w, a: w.committed(a["group"]) == {Place(a["topic"], 0): 0},
    ),
    Case(
        "reset_offsets", "to `earliest`",
        lambda w: {"topic": (topic := w.topic("a", "b")), "group": w.group(topic), "to": "earliest"},
        lambda w, a: {0: 0}, lambda w, a: w.committed(a["group"]) == {Place(a["topic"], 0): 0},
    ),
    Case(
        "reset_offsets", "to `end`",
        lambda w: {"topic": (topic := w.topic("a", "b")), "group": w.group(topic), "to": "end"},
        lambda w, a: {0: 2}, lambda w, a: w.committed(a["group"]) == {Place(a["topic"], 0): 2},
    ),
    Case(
        "reset_offsets", "to text that is not a position",
        lambda w: {"topic": (topic := w.topic("a")), "group": w.group(topic), "to": "abc"},
        fails=ErrorCode.INVALID_SETTING,
    ),
    Case(
        "reset_offsets", "in an unknown topic", lambda w: {"group": w.unused(), **no_topic(w), "to": "latest"},
        fails=UNKNOWN_TOPIC,
    ),
    Case(
        "delete_offsets", "in a topic",
        lambda w: {"topic": (topic := w.topic("a")), "group": w.group(topic)}, lambda w, a: None,
        lambda w, a: w.committed(a["group"]) == {},
    ),
    Case(
        "delete_offsets", "of an unknown group", lambda w: {**no_group(w), "topic": w.topic("a")},
        fails=ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    Case(
        "group_settings", "of a group without its own", lambda w: {"group": w.group(w.topic("a"))}, lambda w, a: {},
    ),
    Case(
        "change_group_settings", "that are not a duration",
        lambda w: {"group": w.unused(), "chosen": {"consumer.session.timeout.ms": "abc"}},
        fails=ErrorCode.INVALID_CONFIG,
    ),
    Case(
        "change_group_settings", "with an unknown setting",
        lambda w: {"group": w.unused(), "chosen": {"no.such.setting": "1"}}, fails=ErrorCode.INVALID_CONFIG,
        field="set.no.such.setting", title=ErrorCode.INVALID_CONFIG.meaning,
    ),
    Case(
        "change_group_settings", "within the broker's limits",
        lambda w: {"group": w.unused(), "chosen": {"consumer.session.timeout.ms": "50000"}}, lambda w, a: None,
        lambda w, a: w.own_settings("group", a["group"]) == {"consumer.session.timeout.ms": "50000"},
    ),
    Case(
        "change_group_settings", "beyond the broker's limits",
        lambda w: {"group": w.unused(), "chosen": {"consumer.session.timeout.ms": "60001"}},
        fails=ErrorCode.INVALID_CONFIG,
    ),
)  # fmt: skip


def _ours(world: World, *values: str) -> Arguments:
    owned = world.owned(*values)
    return {"group": owned.group, "client_id": CLIENT, "iterator": owned.iterator}


def _stranger(world: World) -> Arguments:
    return {"group": world.member(), "client_id": "nobody"}


def _of_another(world: World) -> Arguments:
    owned = world.owned("a")
    world.join(owned.group, "another")
    return {"group": owned.group, "client_id": "another", "topic": owned.topic}


def _committed_before(world: World) -> Arguments:
    ours = _ours(world, "a", "b")
    world.commit(ours["group"], ours["iterator"], 1)
    return ours


_ITERATORS = (
    Case("join_group", "as a new client", lambda w: {"group": w.unused(), "client_id": CLIENT}, lambda w, a: []),
    Case(
        "join_group", "with an empty name", lambda w: {"group": "", "client_id": CLIENT},
        fails=ErrorCode.INVALID_GROUP_ID, field="group", but={"http": "the name is a part of the path"},
    ),
    Case(
        "heartbeat", "with the client's partitions", lambda w: {"group": w.owned("a").group, "client_id": CLIENT},
        lambda w, a: 1, seen=lambda found, _: len(found),
    ),
    Case("heartbeat", "of a client that is no member", _stranger, fails=ErrorCode.UNKNOWN_MEMBER_ID),
    Case(
        "leave_group", "as a member", lambda w: {"group": w.member(), "client_id": CLIENT}, lambda w, a: None,
        lambda w, a: not w.is_member(a["group"]),
    ),
    Case("leave_group", "of a client that is no member", _stranger, fails=ErrorCode.UNKNOWN_MEMBER_ID),
    Case(
        "get_iterator", "of an owned partition",
        lambda w: {"group": w.member(), "client_id": CLIENT, "topic": w.topic("a")}, lambda w, a: Place(a["topic"], 0),
    ),
    Case("get_iterator", "of another client's partition", _of_another, fails=ErrorCode.NOT_OWNER),
    Case(
        "get_iterator", "of an unknown topic", lambda w: {"group": w.member(), "client_id": CLIENT, **no_topic(w)},
        fails=UNKNOWN_TOPIC,
    ),
    Case(
        "list_iterators", "of all clients", lambda w: {"group": w.owned("a").group},
        lambda w, a: [CLIENT], seen=lambda found, _: [InFlight(*row).client_id for row in found],
    ),
    Case("list_iterators", "of an unknown group", no_group, fails=ErrorCode.GROUP_ID_NOT_FOUND),
    Case(
        "read_iterator", "its messages", lambda w: {"iterator": w.owned("a", "b").iterator},
        lambda w, a: [Read(0, "a"), Read(1, "b")],
    ),
    Case(
        "read_iterator", "with a forged token",
        lambda w: {"iterator": w.owned("a").iterator._replace(token=b"made up")}, fails=ErrorCode.INVALID_ITERATOR,
    ),
    Case(
        "deliver_iterator", "a number of messages", lambda w: {**_ours(w, "a", "b"), "count": 1}, lambda w, a: None,
        lambda w, a: w.delivered(a["group"]) == 1,
    ),
    Case("deliver_iterator", "of another client", lambda w: {**_ours(w, "a"), "client_id": "another", "count": 1},
         fails=ErrorCode.FOREIGN_ITERATOR),
    Case(
        "commit_iterator", "a number of messages", lambda w: {**_ours(w, "a", "b"), "count": 1}, lambda w, a: 1,
        lambda w, a: list(w.committed(a["group"]).values()) == [1],
    ),
    Case(
        "commit_iterator", "without a delivery", lambda w: {**_ours(w, "a"), "count": None},
        fails=ErrorCode.NOTHING_DELIVERED,
    ),
    Case(
        "commit_iterator", "that was committed before", lambda w: {**_committed_before(w), "count": 2},
        fails=ErrorCode.ITERATOR_SETTLED,
    ),
)  # fmt: skip


def _no_cluster(world: World) -> Arguments:
    return {"name": world.unused()}


_CLUSTER = (
    Case(
        "create_cluster", "of one broker", lambda w: {"name": w.unused(), "brokers": 1},
        lambda w, a: Made(a["name"], 1, False),
    ),
    Case(
        "create_cluster", "with a retention that is not a duration",
        lambda w: {"name": w.unused(), "brokers": 1, "retention": "abc"}, fails=ErrorCode.INVALID_CONFIG,
        field="retention_ms", but={"grpc": "`retention_ms` is a number"},
    ),
    Case(
        "create_cluster", "that exists", lambda w: {"name": w.cluster(), "brokers": 1}, fails=ErrorCode.CLUSTER_EXISTS,
    ),
    Case(
        "create_cluster", "with an invalid name", lambda w: {"name": "No Name", "brokers": 1},
        fails=ErrorCode.INVALID_CLUSTER, field="name",
    ),
    Case(
        "create_cluster", "with too many brokers", lambda w: {"name": w.unused(), "brokers": 5_000},
        fails=ErrorCode.INVALID_CLUSTER, field="brokers",
    ),
    Case(
        "list_clusters", "by name", lambda w: {"name": w.cluster()}, lambda w, a: True,
        seen=lambda found, a: {"default", a["name"]} <= set(found), only_for_us=("name",),
    ),
    Case(
        "stop_cluster", "that runs", lambda w: {"name": w.cluster()}, lambda w, a: Made(a["name"], 1, True),
    ),
    Case("stop_cluster", "that does not exist", _no_cluster, fails=ErrorCode.UNKNOWN_CLUSTER),
    Case(
        "start_cluster", "that was stopped", lambda w: {"name": w.cluster()}, lambda w, a: Made(a["name"], 1, False),
    ),
    Case("start_cluster", "that does not exist", _no_cluster, fails=ErrorCode.UNKNOWN_CLUSTER),
    Case(
        "delete_cluster", "that exists", lambda w: {"name": w.further_cluster()}, lambda w, a: None,
        lambda w, a: a["name"] not in w.clusters(),
    ),
    Case("delete_cluster", "that does not exist", _no_cluster, fails=ErrorCode.UNKNOWN_CLUSTER),
    Case(
        "service_map", "with a topic's leaders", lambda w: {"topics": [w.topic(partitions=2)]},
        lambda w, a: {Place(a["topics"][0], number): 1 for number in (0, 1)},
    ),
    Case("service_map", "of an unknown topic", lambda w: {"topics": [w.unused()]}, fails=UNKNOWN_TOPIC),
    Case(
        "backup_map", "with a topic's end offset", lambda w: {"topics": [w.topic("a", "b")]},
        lambda w, a: {Place(a["topics"][0], 0): 2},
    ),
    Case("backup_map", "of an unknown topic", lambda w: {"topics": [w.unused()]}, fails=UNKNOWN_TOPIC),
    Case(
        "query", "a topic's row",
        lambda w: {"sql": f"SELECT name, 7 AS n, NULL AS empty FROM topics WHERE name = '{w.topic()}'"},
        lambda w, a: (["name", "n", "empty"], [[a["sql"].split("'")[1], 7, None]]),
    ),
    Case("query", "that writes", lambda w: {"sql": "DELETE FROM topics"}, fails=ErrorCode.INVALID_REQUEST),
    Case(
        "info", "with the broker's version", lambda w: {},
        lambda w, a: (w.client.info().broker.version, w.client.info().broker.cluster_id),
    ),
    Case("describe_cluster", "with its brokers", lambda w: {}, lambda w, a: {1: w.broker.port}),
    Case(
        "broker_settings", "all of them", lambda w: {"broker": 1}, lambda w, a: "1",
        seen=lambda found, _: found["node.id"],
    ),
    Case(
        "broker_settings", "of an unknown broker", lambda w: {"broker": 77}, fails=ErrorCode.RESOURCE_NOT_FOUND,
        but={"wire": "a broker answers only for itself and does not know other brokers"},
    ),
    Case(
        "change_broker_settings", "that cannot change at run time",
        lambda w: {"broker": 1, "chosen": {"node.id": "9"}}, fails=ErrorCode.INVALID_REQUEST, field="set.node.id",
        says="cannot be changed", title="the setting cannot be changed while the broker runs",
    ),
    Case(
        "change_broker_settings", "with a misspelled setting", lambda w: {"broker": 1, "chosen": {"nod.id": "9"}},
        fails=ErrorCode.INVALID_CONFIG, field="set.nod.id", says="did you mean node.id?",
    ),
)  # fmt: skip

GROUP_CASES = (*_GROUPS, *_ITERATORS, *_CLUSTER)
