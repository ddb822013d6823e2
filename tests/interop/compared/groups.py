"""Lists compared requests about groups and their members."""

from typing import Any

from interop.compared.cases import Ask, Case, case
from interop.compared.world import CLASSIC, MODERN, PLAIN, RESTING, SUBSCRIPTION, UNKNOWN_ID, World, commit, join_fields

_ALL = ["missing", RESTING, CLASSIC, MODERN, ""]
_FIRST = [{"name": PLAIN, "partition_indexes": [0]}]
_STRANGER: dict[str, Any] = {"generation_id_or_member_epoch": 3, "member_id": "nobody"}


def _member(**others: Any) -> Ask:
    """Build the fields that identify the member of CLASSIC, with some of them changed."""
    return lambda world: {"group_id": CLASSIC, "generation_id": world.generation, "member_id": world.member} | others


def _join(name: str, group: str, **others: Any) -> Case:
    return case(f"join {name}", "JoinGroup", 9, **join_fields(group) | others)


JOINED = [
    _join("for the first time", "new group"),
    _join("with an unknown member id", "new group", member_id="nobody"),
    _join("without a name of the group", ""),
    _join("with too short a session", "new group", session_timeout_ms=1),
    _join("with too long a session", "new group", session_timeout_ms=2**31 - 1),
    _join("with a negative session", "new group", session_timeout_ms=-1),
    _join("without protocols", "new group", protocols=[]),
    _join("without a type", "new group", protocol_type=""),
    _join("a group as an unknown member", CLASSIC, member_id="nobody"),
    _join("a group with another type", CLASSIC, protocol_type="connect"),
    _join("a group with other protocols", CLASSIC, protocols=[{"name": "other", "metadata": SUBSCRIPTION}]),
    _join("a group of the new protocol with a protocol it does not know", MODERN),
    _join("as an unknown static member", "new group", member_id="nobody", group_instance_id="static"),
    _join("with an empty static id", "group of nameless", group_instance_id=""),
    _join("with a static id that no client would send", "group of odd ones", group_instance_id="a b/\x00é" + "x" * 300),
    _join("with dots for a static id", "group of dots", group_instance_id=".."),
]


def _sync(name: str, **others: Any) -> Case:
    return Case(f"sync {name}", "SyncGroup", 5, lambda world: world.sync_fields() | others)


LIVED = [
    _sync("as it is"),
    _sync("an unknown group", group_id="missing"),
    _sync("without a name of the group", group_id=""),
    _sync("as an unknown member", member_id="nobody"),
    _sync("in another generation", generation_id=99),
    _sync("another type", protocol_type="connect"),
    _sync("another protocol", protocol_name="other"),
    _sync("as an unknown static member", group_instance_id="static"),
    Case("heartbeat as it is", "Heartbeat", 4, _member()),
    Case("heartbeat of an unknown group", "Heartbeat", 4, _member(group_id="missing")),
    Case("heartbeat without a group", "Heartbeat", 4, _member(group_id="")),
    Case("heartbeat of an unknown member", "Heartbeat", 4, _member(member_id="nobody")),
    Case("heartbeat of another generation", "Heartbeat", 4, _member(generation_id=99)),
    Case("heartbeat of an old generation", "Heartbeat", 4, _member(generation_id=-5)),
    Case("heartbeat of an unknown static member", "Heartbeat", 4, _member(group_instance_id="static")),
    Case("heartbeat of a group at rest", "Heartbeat", 4, _member(group_id=RESTING)),
    Case("heartbeat of a group of the new protocol", "Heartbeat", 4, _member(group_id=MODERN)),
    case("leave an unknown group", "LeaveGroup", 5, group_id="missing", members=[{"member_id": "nobody"}]),
    case("leave a group as nobody", "LeaveGroup", 5, group_id=CLASSIC, members=[{"member_id": "nobody"}]),
    case("leave a group with nobody", "LeaveGroup", 5, group_id=CLASSIC, members=[]),
    case("leave without a group", "LeaveGroup", 5, group_id="", members=[{"member_id": "nobody"}]),
    case(
        "leave a group as an unknown static member",
        "LeaveGroup",
        5,
        group_id=CLASSIC,
        members=[{"member_id": "", "group_instance_id": "static"}],
    ),
    case("leave a group as nobody in an old version", "LeaveGroup", 2, group_id=CLASSIC, member_id="nobody"),
    case("leave an unknown group in an old version", "LeaveGroup", 2, group_id="missing", member_id="nobody"),
]


def _commit(name: str, ask: Ask, version: int = 8) -> Case:
    return Case(f"commit {name}", "OffsetCommit", version, ask)


def _as_member(**others: Any) -> Ask:
    def fields(world: World) -> dict[str, Any]:
        own: dict[str, Any] = {"generation_id_or_member_epoch": world.generation, "member_id": world.member}
        return commit(CLASSIC, **own | others)

    return fields


def _as_modern(**others: Any) -> Ask:
    def fields(world: World) -> dict[str, Any]:
        own: dict[str, Any] = {"generation_id_or_member_epoch": world.modern_epoch, "member_id": world.modern_member}
        return commit(MODERN, **own | others)

    return fields


COMMITTED = [
    _commit("from outside", lambda _: commit(RESTING)),
    _commit("to a group that is not there", lambda _: commit("made by a commit")),
    _commit("without a group", lambda _: commit("")),
    _commit("in a topic that is not there", lambda _: commit(RESTING, topic="missing")),
    _commit("in a name that cannot be", lambda _: commit(RESTING, topic="a b")),
    _commit("in a partition that is not there", lambda _: commit(RESTING, partition=9)),
    _commit("in a negative partition", lambda _: commit(RESTING, partition=-1)),
    _commit("a negative offset", lambda _: commit(RESTING, committed_offset=-5)),
    _commit("too much metadata", lambda _: commit(RESTING, committed_metadata="x" * 5_000)),
    _commit("nothing", lambda _: commit(RESTING) | {"topics": []}),
    _commit("from outside into a group with members", lambda _: commit(CLASSIC)),
    _commit("as a member", _as_member()),
    _commit("as an unknown member", _as_member(member_id="nobody")),
    _commit("in another generation", _as_member(generation_id_or_member_epoch=99)),
    _commit("as an unknown static member", _as_member(group_instance_id="static")),
    _commit("as a member of a group at rest", lambda _: commit(RESTING, **_STRANGER)),
    _commit(
        "as a member of a group that is not there",
        lambda _: commit("no", **_STRANGER),
    ),
    _commit("from outside into a group of the new protocol", lambda _: commit(MODERN), 9),
    _commit("as a member of the new protocol", _as_modern(), 9),
    _commit("as a member of the new protocol, in an old version", _as_modern(), 8),
    _commit("as an unknown member of the new protocol", _as_modern(member_id="nobody"), 9),
    _commit("in an epoch to come", _as_modern(generation_id_or_member_epoch=99), 9),
    _commit(
        "by an unknown id",
        lambda _: (
            commit(RESTING)
            | {"topics": [{"topic_id": UNKNOWN_ID, "partitions": [{"partition_index": 0, "committed_offset": 1}]}]}
        ),
        10,
    ),
]


def _fetch(name: str, version: int = 9, **group: Any) -> Case:
    return case(f"commits {name}", "OffsetFetch", version, groups=[{"group_id": RESTING, "topics": None} | group])


TOLD = [
    _fetch("of a group"),
    _fetch("of a group that is not there", group_id="missing"),
    _fetch("without a group", group_id=""),
    _fetch("in a topic that is not there", topics=[{"name": "missing", "partition_indexes": [0]}]),
    _fetch("in partitions that are not there", topics=[{"name": PLAIN, "partition_indexes": [9, -1]}]),
    _fetch("in no partitions", topics=[{"name": PLAIN, "partition_indexes": []}]),
    _fetch("as an unknown member", group_id=MODERN, member_id="nobody", member_epoch=1),
    _fetch("as a member of a group at rest", member_id="nobody", member_epoch=1),
    _fetch("of a group of the new protocol", group_id=MODERN),
    case("commits of no groups", "OffsetFetch", 9, groups=[]),
    case(
        "commits in an old version",
        "OffsetFetch",
        5,
        group_id="missing",
        topics=_FIRST,
    ),
    case("find no coordinator", "FindCoordinator", 4, key_type=0, coordinator_keys=[]),
    case("find the coordinator of no name", "FindCoordinator", 4, key_type=0, coordinator_keys=[""]),
    case("find a coordinator of an unknown kind", "FindCoordinator", 4, key_type=77, coordinator_keys=["x"]),
    case("find a coordinator of an unknown kind, one", "FindCoordinator", 3, key_type=77, key="x"),
    case("describe groups", "DescribeGroups", 6, groups=_ALL),
    case("describe groups in an old version", "DescribeGroups", 5, groups=_ALL),
    case("describe no groups", "DescribeGroups", 6, groups=[]),
    case(
        "describe groups of the new protocol",
        "ConsumerGroupDescribe",
        1,
        group_ids=_ALL,
    ),
    case("list groups", "ListGroups", 5, states_filter=[], types_filter=[]),
    case("list groups of unknown states and types", "ListGroups", 5, states_filter=["Sleepy"], types_filter=["odd"]),
]

FORGOTTEN = [
    case("delete groups", "DeleteGroups", 2, groups_names=["missing", CLASSIC, MODERN, ""]),
    case("delete no groups", "DeleteGroups", 2, groups_names=[]),
    case("delete one group twice", "DeleteGroups", 2, groups_names=["missing", "missing"]),
    *(
        case(
            f"forget a commit of {group or 'no group'}",
            "OffsetDelete",
            0,
            group_id=group,
            topics=[
                {"name": PLAIN, "partitions": [{"partition_index": 1}, {"partition_index": 9}]},
                {"name": "missing", "partitions": [{"partition_index": 0}]},
            ],
        )
        for group in ("missing", "", RESTING, CLASSIC, MODERN)
    ),
    case("forget nothing", "OffsetDelete", 0, group_id=RESTING, topics=[]),
]


def _heartbeat(name: str, **others: Any) -> Case:
    joining = {
        "group_id": "new modern group",
        "member_id": "4Zx7hTSaQvqYpCSWmbTiqA",
        "member_epoch": 0,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": [PLAIN],
        "topic_partitions": [],
    }
    return case(f"beat {name}", "ConsumerGroupHeartbeat", 1, **joining | others)


def _beat_as_member(name: str, **others: Any) -> Case:
    def fields(world: World) -> dict[str, Any]:
        own = {"group_id": MODERN, "member_id": world.modern_member, "member_epoch": world.modern_epoch}
        return own | others

    return Case(f"beat {name}", "ConsumerGroupHeartbeat", 1, fields)


BEATEN = [
    _heartbeat("without a group", group_id=""),
    _heartbeat("without a member id", member_id=""),
    _heartbeat("with a member id that is too long", member_id="x" * 40),
    _heartbeat("without a rebalance timeout", rebalance_timeout_ms=-1),
    _heartbeat("with no time to rebalance", rebalance_timeout_ms=0),
    _heartbeat("without topics", subscribed_topic_names=None),
    _heartbeat("with no topics", subscribed_topic_names=[]),
    _heartbeat("with an empty expression", subscribed_topic_names=None, subscribed_topic_regex=""),
    _heartbeat("with an expression that is none", subscribed_topic_names=None, subscribed_topic_regex="["),
    _heartbeat("with an unknown assignor", server_assignor="chance"),
    _heartbeat("with an empty instance", instance_id=""),
    _heartbeat("with an empty rack", rack_id=""),
    _heartbeat("while owning what it cannot", topic_partitions=[{"topic_id": UNKNOWN_ID, "partitions": [0]}]),
    _heartbeat("without what it owns", topic_partitions=None),
    _heartbeat("with a negative epoch", member_epoch=-5),
    _heartbeat("to leave an unknown group", member_epoch=-1),
    _heartbeat("to leave for a while without an instance", member_epoch=-2),
    _heartbeat("in an unknown group", member_epoch=3),
    _beat_as_member("as it is"),
    _beat_as_member("of an unknown member", member_id="nobody"),
    _beat_as_member("of an epoch to come", member_epoch=99),
    _beat_as_member("to leave as an unknown member", member_id="nobody", member_epoch=-1),
    _beat_as_member("with an unknown assignor, as a member", server_assignor="chance"),
    # Must be last: it converts the group to the consumer protocol.
    _heartbeat("into a classic group", group_id=CLASSIC),
]
