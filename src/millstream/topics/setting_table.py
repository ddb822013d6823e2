"""The table of topic settings: every one that Kafka 4.3 has, with what it does here.

Defaults are Kafka's too, but for segments: they are smaller and younger, so that expiry and compaction come to them
sooner.

Checking, defaults, DescribeConfigs and the page for users all come from these rows. A row without an effect is there
because programs set it as a matter of course and nobody is harmed when it is not followed; its text says so. What
would promise something that the broker does not keep (remote storage) has only the value that promises nothing.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from millstream.model.limits import MESSAGE_BYTES_MAX, REQUEST_BYTES_MAX
from millstream.records.compression import LEVELS

_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1
_HOUR_MS = 3600 * 1000
_DAY_MS = 24 * _HOUR_MS

_GZIP_DEFAULT_LEVEL = -1


class SettingKind(StrEnum):
    """The type of a setting, by Kafka's names."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    STRING = "string"
    LIST = "list"


class TopicSetting(Struct, frozen=True):
    """One row: numbers have bounds (inclusive), texts and the members of lists have choices or a pattern.

    `broker_name` is what Kafka calls the broker's setting that gives the default. A row without `effect` is accepted
    and kept, and nothing follows it.
    """

    name: str
    kind: SettingKind
    default: str
    doc: str
    low: float = 0
    high: float = 0
    choices: tuple[str, ...] = ()
    pattern: str = ""
    may_be_empty: bool = False
    broker_name: str = ""
    effect: bool = True


def _throttled(role: str, what: str) -> TopicSetting:
    return TopicSetting(
        f"{role}.replication.throttled.replicas",
        SettingKind.LIST,
        "",
        f"Copies whose {what} would be throttled, as `partition:broker` or `*`. Kept, without an effect: no partition "
        "is copied to another broker yet.",
        pattern=r"\*|[0-9]+:[0-9]+",
        may_be_empty=True,
        effect=False,
    )


def _local_retention(unit: str, same: str) -> TopicSetting:
    return TopicSetting(
        f"local.retention.{unit}",
        SettingKind.LONG,
        "-2",
        f"Belongs to remote storage, which is not there; -2: as `{same}`. Kept, without an effect.",
        low=-2,
        high=_LONG_MAX,
        broker_name=f"log.local.retention.{unit}",
        effect=False,
    )


def _remote_switch(name: str) -> TopicSetting:
    return TopicSetting(
        name,
        SettingKind.BOOLEAN,
        "false",
        "Belongs to remote storage, which is not there, so it can only be false.",
        choices=("false",),
        effect=False,
    )


_ROWS = (
    TopicSetting(
        "cleanup.policy",
        SettingKind.LIST,
        "delete",
        "What becomes of old messages: `delete` removes them by age and size, `compact` keeps the last one of each "
        "key, `compact,delete` does both.",
        choices=("compact", "delete"),
        broker_name="log.cleanup.policy",
    ),
    TopicSetting(
        "compression.gzip.level",
        SettingKind.INT,
        str(_GZIP_DEFAULT_LEVEL),
        "How hard gzip works where the broker compresses: 1 to 9, more is smaller and slower; -1: as gzip thinks best.",
        low=_GZIP_DEFAULT_LEVEL,
        high=LEVELS["gzip"][-1],
        choices=tuple(map(str, (_GZIP_DEFAULT_LEVEL, *LEVELS["gzip"]))),
        broker_name="compression.gzip.level",
    ),
    TopicSetting(
        "compression.lz4.level",
        SettingKind.INT,
        "9",
        "How hard LZ4 works where the broker compresses: 1 to 17, more is smaller and slower.",
        low=LEVELS["lz4"][0],
        high=LEVELS["lz4"][-1],
        broker_name="compression.lz4.level",
    ),
    TopicSetting(
        "compression.type",
        SettingKind.STRING,
        "producer",
        "How batches are stored: `producer` keeps them as they came, unopened; any other value has the broker open "
        "each batch that is compressed otherwise and compress it anew, which costs its processor.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        broker_name="compression.type",
    ),
    TopicSetting(
        "compression.zstd.level",
        SettingKind.INT,
        "3",
        "How hard Zstandard works where the broker compresses: -131072 to 22, more is smaller and slower.",
        low=LEVELS["zstd"][0],
        high=LEVELS["zstd"][-1],
        broker_name="compression.zstd.level",
    ),
    TopicSetting(
        "delete.retention.ms",
        SettingKind.LONG,
        str(_DAY_MS),
        "So long a tombstone stays in a compacted topic after it has done its work, so that readers see it.",
        high=_LONG_MAX,
        broker_name="log.cleaner.delete.retention.ms",
    ),
    TopicSetting(
        "file.delete.delay.ms",
        SettingKind.LONG,
        "60000",
        "How long a removed segment would stay on the disk. Kept, without an effect: its file goes when its last "
        "reader has gone.",
        high=_LONG_MAX,
        broker_name="log.segment.delete.delay.ms",
        effect=False,
    ),
    TopicSetting(
        "flush.messages",
        SettingKind.LONG,
        str(_LONG_MAX),
        "After how many messages a flush would be forced. Kept, without an effect: the broker flushes before it "
        "acknowledges, unless it was started with another `flush` setting.",
        low=1,
        high=_LONG_MAX,
        broker_name="log.flush.interval.messages",
        effect=False,
    ),
    TopicSetting(
        "flush.ms",
        SettingKind.LONG,
        str(_LONG_MAX),
        "After what time a flush would be forced. Kept, without an effect: see `flush.messages`.",
        high=_LONG_MAX,
        broker_name="log.flush.interval.ms",
        effect=False,
    ),
    _throttled("follower", "receiving"),
    TopicSetting(
        "index.interval.bytes",
        SettingKind.INT,
        "4096",
        "How many bytes would lie between two index entries. Kept, without an effect: the broker decides by itself.",
        high=_INT_MAX,
        broker_name="log.index.interval.bytes",
        effect=False,
    ),
    _throttled("leader", "sending"),
    _local_retention("bytes", "retention.bytes"),
    _local_retention("ms", "retention.ms"),
    TopicSetting(
        "max.compaction.lag.ms",
        SettingKind.LONG,
        str(_LONG_MAX),
        "After this time at the latest a message of a compacted topic is considered for compaction.",
        low=1,
        high=_LONG_MAX,
        broker_name="log.cleaner.max.compaction.lag.ms",
    ),
    TopicSetting(
        "max.message.bytes",
        SettingKind.INT,
        str(MESSAGE_BYTES_MAX),
        "Largest batch the topic takes, after compression.",
        high=REQUEST_BYTES_MAX,
        broker_name="message.max.bytes",
    ),
    TopicSetting(
        "message.timestamp.after.max.ms",
        SettingKind.LONG,
        str(_HOUR_MS),
        "How far the newest time of a batch may lie ahead of the broker's clock (CreateTime only).",
        high=_LONG_MAX,
        broker_name="log.message.timestamp.after.max.ms",
    ),
    TopicSetting(
        "message.timestamp.before.max.ms",
        SettingKind.LONG,
        str(_LONG_MAX),
        "How far the first and the newest time of a batch may lie behind the broker's clock (CreateTime only).",
        high=_LONG_MAX,
        broker_name="log.message.timestamp.before.max.ms",
    ),
    TopicSetting(
        "message.timestamp.type",
        SettingKind.STRING,
        "CreateTime",
        "Whose time a message carries: its producer's (CreateTime) or the broker's (LogAppendTime).",
        choices=("CreateTime", "LogAppendTime"),
        broker_name="log.message.timestamp.type",
    ),
    TopicSetting(
        "min.cleanable.dirty.ratio",
        SettingKind.DOUBLE,
        "0.5",
        "The cleaner takes up a compacted log when at least this part of it is not compacted yet.",
        high=1,
        broker_name="log.cleaner.min.cleanable.ratio",
    ),
    TopicSetting(
        "min.compaction.lag.ms",
        SettingKind.LONG,
        "0",
        "So long a message of a compacted topic is safe from compaction.",
        high=_LONG_MAX,
        broker_name="log.cleaner.min.compaction.lag.ms",
    ),
    TopicSetting(
        "min.insync.replicas",
        SettingKind.INT,
        "1",
        "So many replicas must be in sync for a write with acks=all to be accepted.",
        low=1,
        high=_INT_MAX,
        broker_name="min.insync.replicas",
    ),
    TopicSetting(
        "preallocate",
        SettingKind.BOOLEAN,
        "false",
        "Whether a new segment would reserve its room at once. Kept, without an effect: files grow by writing.",
        choices=("true", "false"),
        broker_name="log.preallocate",
        effect=False,
    ),
    _remote_switch("remote.log.copy.disable"),
    _remote_switch("remote.log.delete.on.disable"),
    _remote_switch("remote.storage.enable"),
    TopicSetting(
        "retention.bytes",
        SettingKind.LONG,
        "-1",
        "A partition larger than this loses its oldest segments; -1: no limit.",
        low=-1,
        high=_LONG_MAX,
        broker_name="log.retention.bytes",
    ),
    TopicSetting(
        "retention.ms",
        SettingKind.LONG,
        str(7 * _DAY_MS),
        "Messages older than this are removed, a whole segment at a time; -1: never. A segment takes messages no "
        "longer than this, so the last one is gone after at most twice the time and one round of the cleaner.",
        low=-1,
        high=_LONG_MAX,
        broker_name="log.retention.ms",
    ),
    TopicSetting(
        "segment.bytes",
        SettingKind.INT,
        str(256 * 1024 * 1024),
        "A segment file that has reached this size is followed by a new one.",
        low=16 * 1024,
        high=_INT_MAX,
        broker_name="log.segment.bytes",
    ),
    TopicSetting(
        "segment.index.bytes",
        SettingKind.INT,
        str(10 * 1024 * 1024),
        "How large a segment's index might grow. Kept, without an effect: an index has the size it needs.",
        low=4,
        high=_INT_MAX,
        broker_name="log.index.size.max.bytes",
        effect=False,
    ),
    TopicSetting(
        "segment.jitter.ms",
        SettingKind.LONG,
        "0",
        "By how much the age of `segment.ms` would vary by chance. Kept, without an effect: segments end when their "
        "first message has that age, which differs from partition to partition by itself.",
        high=_LONG_MAX,
        broker_name="log.roll.jitter.ms",
        effect=False,
    ),
    TopicSetting(
        "segment.ms",
        SettingKind.LONG,
        str(_DAY_MS),
        "A segment file of this age is followed by a new one, so that retention and compaction can take it.",
        low=1,
        high=_LONG_MAX,
        broker_name="log.roll.ms",
    ),
    TopicSetting(
        "unclean.leader.election.enable",
        SettingKind.BOOLEAN,
        "false",
        "Whether a copy that lags behind might become the leader. Kept, without an effect: there is one copy, which "
        "leads.",
        choices=("true", "false"),
        broker_name="unclean.leader.election.enable",
        effect=False,
    ),
)

TABLE: Mapping[str, TopicSetting] = {row.name: row for row in _ROWS}
