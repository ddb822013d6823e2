"""Topics, writing and reading: what is called, and what must come of it."""

from integration.verbs.case import BAD_NAME, FLAG, UNKNOWN_TOPIC, Arguments, Case, no_topic
from integration.verbs.shapes import PartitionRow, Place, Read, Stored, TopicRow
from integration.verbs.world import World
from millstream.model.errors import ErrorCode
from millstream.model.names import TopicPartition


def _is_one_partition(first: int, end: int) -> list[PartitionRow]:
    return [PartitionRow(0, 1, (1,), (1,), first, end)]


_TOPICS = (
    Case(
        "list_topics", "in the order of their names, with what is in them",
        lambda w: {"after": w.topic(), "limit": len([w.topic("a", "b"), w.topic(partitions=3)])},
        lambda w, a: [TopicRow(_next(a["after"], 1), 1, 2), TopicRow(_next(a["after"], 2), 3, 0)],
    ),
    Case(
        "create_topic", "with the partitions and settings asked for",
        lambda w: {"name": w.unused(), "partitions": 3, "settings": {"retention.ms": "60000"}},
        lambda w, a: str(w.client.describe_topic(a["name"]).topic_id),
        lambda w, a: w.partitions(a["name"]) == 3 and w.own_settings("topic", a["name"]) == a["settings"],
    ),
    Case("create_topic", "that exists", lambda w: {"name": w.topic()}, fails=ErrorCode.TOPIC_ALREADY_EXISTS),
    Case("create_topic", "of a bad name", lambda w: {"name": BAD_NAME}, fails=ErrorCode.INVALID_TOPIC, field="name"),
    Case(
        "create_topic", "of too many partitions", lambda w: {"name": w.unused(), "partitions": 200_000},
        fails=ErrorCode.INVALID_PARTITIONS, field="partitions",
    ),
    Case(
        "create_topic", "of fewer partitions than none", lambda w: {"name": w.unused(), "partitions": -5},
        fails=ErrorCode.INVALID_PARTITIONS, field="partitions", but={"cli": FLAG},
    ),
    Case(
        "create_topic", "with a setting that is none",
        lambda w: {"name": w.unused(), "settings": {"no.such.setting": "1"}},
        fails=ErrorCode.INVALID_CONFIG, field="settings",
    ),
    Case(
        "add_partitions", "more than there are", lambda w: {"topic": w.topic(), "total": 2}, lambda w, a: None,
        lambda w, a: w.partitions(a["topic"]) == 2,
    ),
    Case(
        "add_partitions", "as many as there are", lambda w: {"topic": w.topic(), "total": 1},
        fails=ErrorCode.INVALID_PARTITIONS,
    ),
    Case("add_partitions", "to no topic", lambda w: {**no_topic(w), "total": 2}, fails=UNKNOWN_TOPIC),
    Case(
        "describe_topic", "with where it begins and ends", lambda w: {"topic": w.topic("a", "b")},
        lambda w, a: _is_one_partition(0, 2),
    ),
    Case("describe_topic", "that is not there", no_topic, fails=UNKNOWN_TOPIC),
    Case("describe_topic", "of a bad name", lambda w: {"topic": BAD_NAME}, fails=ErrorCode.INVALID_TOPIC),
    Case(
        "log_directories", "with a topic's partition", lambda w: {"topic": w.topic("a")},
        lambda w, a: [Place(a["topic"], 0)],
    ),
    Case(
        "delete_topic", "for good", lambda w: {"topic": w.topic("a")}, lambda w, a: None,
        lambda w, a: not w.is_there(a["topic"]),
    ),
    Case("delete_topic", "that is not there", no_topic, fails=UNKNOWN_TOPIC),
    Case(
        "delete_messages", "all", lambda w: {"topic": w.topic("a", "b"), "before": {0: -1}}, lambda w, a: {0: 2},
        lambda w, a: w.values(a["topic"]) == [],
    ),
    Case(
        "delete_messages", "up to an offset", lambda w: {"topic": w.topic("a", "b"), "before": {0: 1}},
        lambda w, a: {0: 1}, lambda w, a: w.values(a["topic"]) == ["b"], but={"cli": "a topic is emptied as a whole"},
    ),
    Case(
        "delete_messages", "beyond the end", lambda w: {"topic": w.topic("a", "b"), "before": {0: 99}},
        fails=ErrorCode.OFFSET_OUT_OF_RANGE, but={"cli": "a topic is emptied as a whole"},
    ),
    Case("delete_messages", "of no topic", lambda w: {**no_topic(w), "before": {0: -1}}, fails=UNKNOWN_TOPIC),
    Case(
        "topic_settings", "its own", lambda w: {"topic": w.topic(settings={"retention.ms": "5000"})},
        lambda w, a: {"retention.ms": "5000"},
    ),
    Case("topic_settings", "of no topic", no_topic, fails=UNKNOWN_TOPIC),
    Case(
        "change_topic_settings", "one set and one unset",
        lambda w: {
            "topic": w.topic(settings={"retention.ms": "5000"}),
            "chosen": {"max.message.bytes": "2000"},
            "unset": ["retention.ms"],
        },
        lambda w, a: None,
        lambda w, a: w.own_settings("topic", a["topic"]) == {"max.message.bytes": "2000"},
    ),
    Case(
        "change_topic_settings", "to what is none",
        lambda w: {"topic": w.topic(), "chosen": {"no.such.setting": "1"}}, fails=ErrorCode.INVALID_CONFIG,
    ),
    Case(
        "change_topic_settings", "of no topic", lambda w: {**no_topic(w), "chosen": {"retention.ms": "1000"}},
        fails=UNKNOWN_TOPIC,
    ),
)  # fmt: skip


def _next(name: str, steps: int) -> str:
    """The name that was made so many steps later."""
    head, _, number = name.rpartition("-")
    return f"{head}-{int(number) + steps:04}"


_WRITING = (
    Case(
        "put", "behind what is there", lambda w: {"topic": w.topic("a"), "value": "b"}, lambda w, a: Stored(0, 1),
        lambda w, a: w.values(a["topic"]) == ["a", "b"],
    ),
    Case(
        "put", "into the partition that is named",
        lambda w: {"topic": w.topic(partitions=3), "value": "a", "partition": 2}, lambda w, a: Stored(2, 0),
    ),
    Case(
        "put", "to a topic that is not there, which makes it", lambda w: {**no_topic(w), "value": "a"},
        lambda w, a: Stored(0, 0), lambda w, a: w.values(a["topic"]) == ["a"],
        but={"wire": "Metadata makes topics there, not writing"},
    ),
    Case("put", "to a bad name", lambda w: {"topic": BAD_NAME, "value": "a"}, fails=ErrorCode.INVALID_TOPIC),
    Case(
        "put", "that is too large",
        lambda w: {"topic": w.topic(settings={"max.message.bytes": "1000"}), "value": "a" * 5_000, "partition": 0},
        fails=ErrorCode.MESSAGE_TOO_LARGE,
    ),
    Case(
        "put_many", "in their order", lambda w: {"topic": w.topic(), "values": ["a", "b", "c"]},
        lambda w, a: [Stored(0, 0), Stored(0, 1), Stored(0, 2)], lambda w, a: w.values(a["topic"]) == a["values"],
    ),
    Case("put_many", "to a bad name", lambda w: {"topic": BAD_NAME, "values": ["a"]}, fails=ErrorCode.INVALID_TOPIC),
    Case(
        "put_by_hash", "which decides by its remainder",
        lambda w: {"topic": w.topic(partitions=4), "value": "a", "hash": 4_003}, lambda w, a: Stored(3, 0),
    ),
    Case(
        "put_once", "for the first time", lambda w: {"topic": w.topic("a"), "value": "b", "message_id": "mine"},
        lambda w, a: Stored(0, 1),
    ),
    Case(
        "put_once", "again, which is told the first place", lambda w: _was_put(w, "b"),
        lambda w, a: Stored(0, 0), lambda w, a: w.values(a["topic"]) == ["b"],
    ),
    Case(
        "put_once", "under an id that is none", lambda w: {"topic": w.topic(), "value": "b", "message_id": "~mine"},
        fails=ErrorCode.INVALID_MESSAGE_ID,
    ),
)  # fmt: skip


def _was_put(world: World, value: str) -> Arguments:
    call: Arguments = {"topic": world.topic(), "value": value, "message_id": "mine"}
    with world.client.producer() as producer:
        producer.put(**call).result()
    return call


def _coming(world: World, value: str) -> Arguments:
    topic = world.topic("a", "b")
    world.put_soon(topic, value)
    return {"topic": topic, "offset": 2}


_READING = (
    Case(
        "get", "from an offset on", lambda w: {"topic": w.topic("a", "b", "c"), "partition": 0, "offset": 1},
        lambda w, a: [Read(1, "b"), Read(2, "c")],
    ),
    Case(
        "get", "no more than asked for",
        lambda w: {"topic": w.topic("a", "b", "c"), "partition": 0, "offset": 0, "max_messages": 2},
        lambda w, a: [Read(0, "a"), Read(1, "b")],
    ),
    Case("get", "at the end", lambda w: {"topic": w.topic("a"), "partition": 0, "offset": 1}, lambda w, a: []),
    Case(
        "get", "what was removed", lambda w: {"topic": _cut(w), "partition": 0, "offset": 0},
        fails=ErrorCode.OFFSET_OUT_OF_RANGE,
    ),
    Case("get", "of no topic", lambda w: {**no_topic(w), "partition": 0, "offset": 0}, fails=UNKNOWN_TOPIC),
    Case(
        "get", "of no partition", lambda w: {"topic": w.topic("a"), "partition": 7, "offset": 0}, fails=UNKNOWN_TOPIC,
    ),
    Case(
        "get", "of a name that is too long", lambda w: {"topic": "a" * 250, "partition": 0, "offset": 0},
        fails=ErrorCode.INVALID_TOPIC, field="topic", but={"wire": "Fetch knows such a topic as little as any other"},
    ),
    Case(
        "poll", "all there is, and where to go on", lambda w: {"topic": w.topic("a", "b")},
        lambda w, a: ([Read(0, "a"), Read(1, "b")], 2),
    ),
    Case(
        "long_poll", "until somebody writes", lambda w: _coming(w, "news"), lambda w, a: [Read(2, "news")],
    ),
    Case("find_offsets", "of the beginning", lambda w: {"topic": _cut(w), "at": "beginning"}, lambda w, a: {0: 1}),
    Case("find_offsets", "of the end", lambda w: {"topic": w.topic("a", "b"), "at": "latest"}, lambda w, a: {0: 2}),
    Case("find_offsets", "of a time", lambda w: {"topic": w.topic("a", "b"), "at": 1_000}, lambda w, a: {0: 0}),
    Case("find_offsets", "of no topic", lambda w: {**no_topic(w), "at": "latest"}, fails=UNKNOWN_TOPIC),
    Case(
        "subscribe", "from the beginning on", lambda w: {"topic": w.topic("a", "b"), "count": 2},
        lambda w, a: [Read(0, "a"), Read(1, "b")],
    ),
    Case("subscribe", "to no topic", lambda w: {**no_topic(w), "count": 1}, fails=UNKNOWN_TOPIC),
    Case("dump", "all there is", lambda w: {"topic": w.topic("a", "b")}, lambda w, a: [Read(0, "a"), Read(1, "b")]),
    Case("dump", "of no topic", no_topic, fails=UNKNOWN_TOPIC),
)  # fmt: skip


def _cut(world: World) -> str:
    """A topic whose first message was removed."""
    topic = world.topic("a", "b")
    world.client.admin.delete_records({TopicPartition(topic, 0): 1})
    return topic


STREAM_CASES = (*_TOPICS, *_WRITING, *_READING)
