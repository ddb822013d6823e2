"""Defines the cases of topics, writes and reads."""

from integration.verbs.case import BAD_NAME, FLAG, NUMBERS, RECORDS, UNKNOWN_TOPIC, Arguments, Case, no_topic
from integration.verbs.shapes import PartitionRow, Place, Read, Stored, StoredOnce, TopicRow
from integration.verbs.world import World
from millstream.model.errors import ErrorCode
from millstream.model.names import TopicPartition

WHOLE_TOPIC = "`topic empty` deletes all messages of a topic"


def _is_one_partition(first: int, end: int) -> list[PartitionRow]:
    return [PartitionRow(0, 1, (1,), (1,), first, end)]


_TOPICS = (
    Case(
        "list_topics", "ordered by name, with their sizes",
        lambda w: {"after": w.topic(), "limit": len([w.topic("a", "b"), w.topic(partitions=3)])},
        lambda w, a: [TopicRow(_next(a["after"], 1), 1, 2), TopicRow(_next(a["after"], 2), 3, 0)],
    ),
    Case(
        "create_topic", "with partitions and settings",
        lambda w: {"name": w.unused(), "partitions": 3, "settings": {"retention.ms": "60000"}},
        lambda w, a: str(w.client.describe_topic(a["name"]).topic_id),
        lambda w, a: w.partitions(a["name"]) == 3 and w.own_settings("topic", a["name"]) == a["settings"],
    ),
    Case("create_topic", "that exists", lambda w: {"name": w.topic()}, fails=ErrorCode.TOPIC_ALREADY_EXISTS),
    Case(
        "create_topic", "with an invalid name", lambda w: {"name": BAD_NAME}, fails=ErrorCode.INVALID_TOPIC,
        field="name",
    ),
    Case(
        "create_topic", "with too many partitions", lambda w: {"name": w.unused(), "partitions": 200_000},
        fails=ErrorCode.INVALID_PARTITIONS, field="partitions",
    ),
    Case(
        "create_topic", "with a negative number of partitions", lambda w: {"name": w.unused(), "partitions": -5},
        fails=ErrorCode.INVALID_PARTITIONS, field="partitions", but={"cli": FLAG},
    ),
    Case(
        "create_topic", "with a duration and a size as settings",
        lambda w: {"name": w.unused(), "settings": {"retention.ms": "7d", "segment.bytes": "64MiB"}},
        lambda w, a: str(w.client.describe_topic(a["name"]).topic_id),
        lambda w, a: w.own_settings("topic", a["name"]) == {"retention.ms": "604800000", "segment.bytes": "67108864"},
        but={"wire": NUMBERS},
    ),
    Case(
        "create_topic", "with numbers and a boolean as settings",
        lambda w: {"name": w.unused(), "settings": {"retention.ms": 60_000, "preallocate": True}},
        lambda w, a: str(w.client.describe_topic(a["name"]).topic_id),
        lambda w, a: w.own_settings("topic", a["name"]) == {"retention.ms": "60000", "preallocate": "true"},
        but={"wire": NUMBERS, "grpc": "settings are a map of texts", "cli": "flags are texts"},
    ),
    Case(
        "create_topic", "with a setting that is not a duration",
        lambda w: {"name": w.unused(), "settings": {"retention.ms": "abc"}},
        fails=ErrorCode.INVALID_CONFIG, field="settings.retention.ms",
    ),
    Case(
        "create_topic", "with an unknown setting",
        lambda w: {"name": w.unused(), "settings": {"no.such.setting": "1"}},
        fails=ErrorCode.INVALID_CONFIG, field="settings.no.such.setting",
    ),
    Case(
        "create_topic", "with a misspelled setting",
        lambda w: {"name": w.unused(), "settings": {"retention.m": "1"}},
        fails=ErrorCode.INVALID_CONFIG, field="settings.retention.m", says="did you mean retention.ms?",
        title=ErrorCode.INVALID_CONFIG.meaning,
    ),
    Case(
        "add_partitions", "more than there are", lambda w: {"topic": w.topic(), "total": 2}, lambda w, a: None,
        lambda w, a: w.partitions(a["topic"]) == 2,
    ),
    Case(
        "add_partitions", "as many as there are", lambda w: {"topic": w.topic(), "total": 1},
        fails=ErrorCode.INVALID_PARTITIONS, field="total",
    ),
    Case("add_partitions", "to an unknown topic", lambda w: {**no_topic(w), "total": 2}, fails=UNKNOWN_TOPIC),
    Case(
        "describe_topic", "with first and last offsets", lambda w: {"topic": w.topic("a", "b")},
        lambda w, a: _is_one_partition(0, 2),
    ),
    Case("describe_topic", "that does not exist", no_topic, fails=UNKNOWN_TOPIC),
    Case("describe_topic", "with an invalid name", lambda w: {"topic": BAD_NAME}, fails=ErrorCode.INVALID_TOPIC),
    Case(
        "log_directories", "with a topic's partition", lambda w: {"topic": w.topic("a")},
        lambda w, a: [Place(a["topic"], 0)],
    ),
    Case(
        "delete_topic", "that exists", lambda w: {"topic": w.topic("a")}, lambda w, a: None,
        lambda w, a: not w.is_there(a["topic"]),
    ),
    Case("delete_topic", "that does not exist", no_topic, fails=UNKNOWN_TOPIC),
    Case(
        "delete_messages", "all", lambda w: {"topic": w.topic("a", "b"), "before": {0: -1}}, lambda w, a: {0: 2},
        lambda w, a: w.values(a["topic"]) == [],
    ),
    Case(
        "delete_messages", "before an offset", lambda w: {"topic": w.topic("a", "b"), "before": {0: 1}},
        lambda w, a: {0: 1}, lambda w, a: w.values(a["topic"]) == ["b"], but={"cli": WHOLE_TOPIC},
    ),
    Case(
        "delete_messages", "beyond the end", lambda w: {"topic": w.topic("a", "b"), "before": {0: 99}},
        fails=ErrorCode.OFFSET_OUT_OF_RANGE, but={"cli": WHOLE_TOPIC},
    ),
    Case("delete_messages", "of an unknown topic", lambda w: {**no_topic(w), "before": {0: -1}}, fails=UNKNOWN_TOPIC),
    Case(
        "topic_settings", "set on the topic", lambda w: {"topic": w.topic(settings={"retention.ms": "5000"})},
        lambda w, a: {"retention.ms": "5000"},
    ),
    Case("topic_settings", "of an unknown topic", no_topic, fails=UNKNOWN_TOPIC),
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
        "change_topic_settings", "with a duration",
        lambda w: {"topic": w.topic(), "chosen": {"retention.ms": "36h"}}, lambda w, a: None,
        lambda w, a: w.own_settings("topic", a["topic"]) == {"retention.ms": "129600000"}, but={"wire": NUMBERS},
    ),
    Case(
        "change_topic_settings", "that are not a size",
        lambda w: {"topic": w.topic(), "chosen": {"segment.bytes": "1 gallon"}}, fails=ErrorCode.INVALID_CONFIG,
    ),
    Case(
        "change_topic_settings", "with an unknown setting",
        lambda w: {"topic": w.topic(), "chosen": {"no.such.setting": "1"}}, fails=ErrorCode.INVALID_CONFIG,
        field="set.no.such.setting",
    ),
    Case(
        "change_topic_settings", "of an unknown topic", lambda w: {**no_topic(w), "chosen": {"retention.ms": "1000"}},
        fails=UNKNOWN_TOPIC,
    ),
)  # fmt: skip


def _next(name: str, steps: int) -> str:
    """The name that was made `steps` names later."""
    head, _, number = name.rpartition("-")
    return f"{head}-{int(number) + steps:04}"


_WRITING = (
    Case(
        "put", "after the last message", lambda w: {"topic": w.topic("a"), "value": "b"}, lambda w, a: Stored(0, 1),
        lambda w, a: w.values(a["topic"]) == ["a", "b"],
    ),
    Case(
        "put", "to a chosen partition",
        lambda w: {"topic": w.topic(partitions=3), "value": "a", "partition": 2}, lambda w, a: Stored(2, 0),
    ),
    Case(
        "put", "to a missing topic, which creates it", lambda w: {**no_topic(w), "value": "a"},
        lambda w, a: Stored(0, 0), lambda w, a: w.values(a["topic"]) == ["a"],
        but={"wire": "there Metadata creates missing topics, not a write"},
    ),
    Case(
        "put", "without a value", lambda w: {"topic": w.topic(), "value": None}, fails=ErrorCode.INVALID_REQUEST,
        title="a required field is missing",
        but={
            "wire": RECORDS, "sdk": "Python raises TypeError for a missing argument, and None is a tombstone",
            "cli": "without arguments it reads standard input",
        },
    ),
    Case("put", "to an invalid name", lambda w: {"topic": BAD_NAME, "value": "a"}, fails=ErrorCode.INVALID_TOPIC),
    Case(
        "put", "that is too large",
        lambda w: {"topic": w.topic(settings={"max.message.bytes": "1000"}), "value": "a" * 5_000, "partition": 0},
        fails=ErrorCode.MESSAGE_TOO_LARGE,
    ),
    Case(
        "put_many", "in order", lambda w: {"topic": w.topic(), "values": ["a", "b", "c"]},
        lambda w, a: [Stored(0, 0), Stored(0, 1), Stored(0, 2)], lambda w, a: w.values(a["topic"]) == a["values"],
    ),
    Case(
        "put_many", "to an invalid name", lambda w: {"topic": BAD_NAME, "values": ["a"]},
        fails=ErrorCode.INVALID_TOPIC,
    ),
    Case(
        "put_by_hash", "modulo the number of partitions",
        lambda w: {"topic": w.topic(partitions=4), "value": "a", "hash": 4_003}, lambda w, a: Stored(3, 0),
    ),
    Case(
        "put_once", "for the first time", lambda w: {"topic": w.topic("a"), "value": "b", "message_id": "mine"},
        lambda w, a: StoredOnce(0, 1, duplicate=False),
    ),
    Case(
        "put_once", "again, which returns the first offset", lambda w: _was_put(w, "b"),
        lambda w, a: StoredOnce(0, 0, duplicate=True), lambda w, a: w.values(a["topic"]) == ["b"],
    ),
    Case(
        "put_once", "with an invalid id", lambda w: {"topic": w.topic(), "value": "b", "message_id": "~mine"},
        fails=ErrorCode.INVALID_MESSAGE_ID,
    ),
    Case(
        "put_tombstone", "after the last message", lambda w: {"topic": w.topic("a"), "key": "k"},
        lambda w, a: Stored(0, 1), lambda w, a: w.keys_and_values(a["topic"]) == [(None, b"a"), (b"k", None)],
    ),
    Case(
        "put_tombstone", "without a key", lambda w: {"topic": w.topic(), "key": None},
        fails=ErrorCode.INVALID_REQUEST, says="key", title="a required field is missing",
        but={"wire": RECORDS, "cli": FLAG},
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


_NO_WAIT_TEXT = {
    "wire": NUMBERS,
    "grpc": "`wait_ms` is a number of milliseconds",
    "cli": "`get` waits only with --follow, without limit",
}

_READING = (
    Case(
        "get", "from an offset", lambda w: {"topic": w.topic("a", "b", "c"), "partition": 0, "offset": 1},
        lambda w, a: [Read(1, "b"), Read(2, "c")],
    ),
    Case(
        "get", "at most max_messages",
        lambda w: {"topic": w.topic("a", "b", "c"), "partition": 0, "offset": 0, "max_messages": 2},
        lambda w, a: [Read(0, "a"), Read(1, "b")],
    ),
    Case("get", "at the end", lambda w: {"topic": w.topic("a"), "partition": 0, "offset": 1}, lambda w, a: []),
    Case(
        "get", "at a removed offset", lambda w: {"topic": _cut(w), "partition": 0, "offset": 0},
        fails=ErrorCode.OFFSET_OUT_OF_RANGE,
    ),
    Case("get", "from an unknown topic", lambda w: {**no_topic(w), "partition": 0, "offset": 0}, fails=UNKNOWN_TOPIC),
    Case(
        "get", "from an unknown partition", lambda w: {"topic": w.topic("a"), "partition": 7, "offset": 0},
        fails=UNKNOWN_TOPIC,
    ),
    Case(
        "get", "from a name that is too long", lambda w: {"topic": "a" * 250, "partition": 0, "offset": 0},
        fails=ErrorCode.INVALID_TOPIC, field="topic", but={"wire": "Fetch answers that the topic is unknown"},
    ),
    Case(
        "get", "from `earliest`, a synonym of `beginning`",
        lambda w: {"topic": w.topic("a", "b"), "partition": 0, "offset": "earliest"},
        lambda w, a: [Read(0, "a"), Read(1, "b")], but={"wire": NUMBERS},
    ),
    Case(
        "get", "from `end`, a synonym of `latest`",
        lambda w: {"topic": w.topic("a", "b"), "partition": 0, "offset": "end"}, lambda w, a: [], but={"wire": NUMBERS},
    ),
    Case(
        "get", "from text that is not a position", lambda w: {"topic": w.topic("a"), "partition": 0, "offset": "abc"},
        fails=ErrorCode.INVALID_SETTING, but={"wire": NUMBERS},
    ),
    Case(
        "get", "from a time in milliseconds without its unit",
        lambda w: {"topic": w.topic("a"), "partition": 0, "offset": 1_763_555_000_000},
        fails=ErrorCode.INVALID_SETTING, says="looks like", title="the start position or time is not valid",
        but={"wire": NUMBERS},
    ),
    Case(
        "get", "with a wait that has a unit",
        lambda w: {"topic": w.topic("a"), "partition": 0, "offset": 0, "wait_s": "500ms"}, lambda w, a: [Read(0, "a")],
        but=_NO_WAIT_TEXT,
    ),
    Case(
        "get", "with a wait that is not a duration",
        lambda w: {"topic": w.topic("a"), "partition": 0, "offset": 0, "wait_s": "soon"},
        fails=ErrorCode.INVALID_SETTING, field="wait", but=_NO_WAIT_TEXT,
    ),
    Case(
        "poll", "all messages and the next offset", lambda w: {"topic": w.topic("a", "b")},
        lambda w, a: ([Read(0, "a"), Read(1, "b")], 2),
    ),
    Case(
        "long_poll", "until a message is written", lambda w: _coming(w, "news"), lambda w, a: [Read(2, "news")],
    ),
    Case("find_offsets", "of the beginning", lambda w: {"topic": _cut(w), "at": "beginning"}, lambda w, a: {0: 1}),
    Case("find_offsets", "of the end", lambda w: {"topic": w.topic("a", "b"), "at": "latest"}, lambda w, a: {0: 2}),
    Case("find_offsets", "of `earliest`", lambda w: {"topic": _cut(w), "at": "earliest"}, lambda w, a: {0: 1},
         but={"wire": NUMBERS}),
    Case("find_offsets", "of `end`", lambda w: {"topic": w.topic("a", "b"), "at": "end"}, lambda w, a: {0: 2},
         but={"wire": NUMBERS}),
    Case("find_offsets", "of text that is not a position", lambda w: {"topic": w.topic("a"), "at": "abc"},
         fails=ErrorCode.INVALID_SETTING, but={"wire": NUMBERS}),
    Case(
        "find_offsets", "of a time in seconds instead of milliseconds, or the other way round",
        lambda w: {"topic": w.topic("a"), "at": 1_738_324_800_000, "in_wrong_unit": True},
        fails=ErrorCode.INVALID_SETTING, but={"wire": NUMBERS},
    ),
    Case("find_offsets", "of a time", lambda w: {"topic": w.topic("a", "b"), "at": 1_000}, lambda w, a: {0: 0}),
    Case("find_offsets", "of an unknown topic", lambda w: {**no_topic(w), "at": "latest"}, fails=UNKNOWN_TOPIC),
    Case(
        "subscribe", "from the beginning", lambda w: {"topic": w.topic("a", "b"), "count": 2, "start": "beginning"},
        lambda w, a: [Read(0, "a"), Read(1, "b")],
    ),
    Case(
        "subscribe", "from `earliest`", lambda w: {"topic": w.topic("a", "b"), "count": 2, "start": "earliest"},
        lambda w, a: [Read(0, "a"), Read(1, "b")], but={"wire": NUMBERS},
    ),
    Case(
        "subscribe", "from the end by default", lambda w: {"topic": w.growing_topic(), "count": 1}, lambda w, a: "new",
        lambda w, a: w.stop_putting(), seen=lambda found, _: found[0].value, but={"wire": NUMBERS},
    ),
    Case(
        "subscribe", "from `end`", lambda w: {"topic": w.growing_topic(), "count": 1, "start": "end"},
        lambda w, a: "new", lambda w, a: w.stop_putting(), seen=lambda found, _: found[0].value, but={"wire": NUMBERS},
    ),
    Case(
        "subscribe", "from text that is not a position", lambda w: {"topic": w.topic("a"), "count": 1, "start": "abc"},
        fails=ErrorCode.INVALID_SETTING, but={"wire": NUMBERS},
    ),
    Case(
        "subscribe", "to an unknown topic", lambda w: {**no_topic(w), "count": 1, "start": "beginning"},
        fails=UNKNOWN_TOPIC,
    ),
    Case("dump", "all messages", lambda w: {"topic": w.topic("a", "b")}, lambda w, a: [Read(0, "a"), Read(1, "b")]),
    Case("dump", "of an unknown topic", no_topic, fails=UNKNOWN_TOPIC),
)  # fmt: skip


def _cut(world: World) -> str:
    """Create a topic whose first message was deleted."""
    topic = world.topic("a", "b")
    world.client.admin.delete_records({TopicPartition(topic, 0): 1})
    return topic


STREAM_CASES = (*_TOPICS, *_WRITING, *_READING)
