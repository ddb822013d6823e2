"""Lists all topic settings of Kafka 4.3 with their type, default, limits and meaning in Millstream.

The defaults are Kafka's, except for the maximum size and age of a segment. They are lower, so that retention and
compaction apply sooner.

Checks, defaults, DescribeConfigs and the documentation page are derived from these rows. Some settings have no effect,
and their texts say so. They are accepted because programs set them routinely and ignoring them does no harm. A setting
of a feature that the broker lacks (remote storage) accepts only the value that turns the feature off.
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
    """Kafka's names for the types of settings."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    STRING = "string"
    LIST = "list"


class TopicSetting(Struct, frozen=True):
    """One setting. Numbers have inclusive bounds. Strings and list members have choices or a pattern. A list may be
    empty.

    `broker_name` is Kafka's name of the broker setting that provides the default. A setting without `effect` is
    accepted and stored, but not used.
    """

    name: str
    kind: SettingKind
    default: str
    doc: str
    low: float = 0
    high: float = 0
    choices: tuple[str, ...] = ()
    pattern: str = ""
    broker_name: str = ""
    effect: bool = True


def _throttled(role: str, activity: str) -> TopicSetting:
    return TopicSetting(
        f"{role}.replication.throttled.replicas",
        SettingKind.LIST,
        "",
        f"Replicas whose {activity} would be throttled, as `partition:broker` or `*`. No effect: there is no "
        "replication yet.",
        pattern=r"\*|[0-9]+:[0-9]+",
        effect=False,
    )


def _local_retention(unit: str, same: str) -> TopicSetting:
    return TopicSetting(
        f"local.retention.{unit}",
        SettingKind.LONG,
        "-2",
        f"A setting of remote storage, which is not supported; -2: as `{same}`. No effect.",
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
        "A setting of remote storage, which is not supported, so it must be false.",
        choices=("false",),
        effect=False,
    )


_ROWS = (
    TopicSetting(
        "cleanup.policy",
        SettingKind.LIST,
        "delete",
        "How old messages are removed: `delete` removes them by age and size, `compact` keeps the last message of each "
        "key, `compact,delete` does both. With an empty list, only DeleteRecords removes messages.",
        choices=("compact", "delete"),
        broker_name="log.cleanup.policy",
    ),
    TopicSetting(
        "compression.gzip.level",
        SettingKind.INT,
        str(_GZIP_DEFAULT_LEVEL),
        "The gzip level when the broker compresses: 1 to 9, a higher level is smaller and slower; -1: gzip's default.",
        low=_GZIP_DEFAULT_LEVEL,
        high=LEVELS["gzip"][-1],
        choices=tuple(map(str, (_GZIP_DEFAULT_LEVEL, *LEVELS["gzip"]))),
        broker_name="compression.gzip.level",
    ),
    TopicSetting(
        "compression.lz4.level",
        SettingKind.INT,
        "9",
        "The LZ4 level when the broker compresses: 1 to 17, a higher level is smaller and slower.",
        low=LEVELS["lz4"][0],
        high=LEVELS["lz4"][-1],
        broker_name="compression.lz4.level",
    ),
    TopicSetting(
        "compression.type",
        SettingKind.STRING,
        "producer",
        "How batches are stored: `producer` stores them as they were sent. With any other value the broker "
        "recompresses each batch that has another compression, which costs CPU.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        broker_name="compression.type",
    ),
    TopicSetting(
        "compression.zstd.level",
        SettingKind.INT,
        "3",
        "The Zstandard level when the broker compresses: -131072 to 22, a higher level is smaller and slower.",
        low=LEVELS["zstd"][0],
        high=LEVELS["zstd"][-1],
        broker_name="compression.zstd.level",
    ),
    TopicSetting(
        "delete.retention.ms",
        SettingKind.LONG,
        str(_DAY_MS),
        "How long a tombstone stays in a compacted topic after its key was removed, so that readers see it.",
        high=_LONG_MAX,
        broker_name="log.cleaner.delete.retention.ms",
    ),
    TopicSetting(
        "file.delete.delay.ms",
        SettingKind.LONG,
        "60000",
        "How long a removed segment would stay on disk. No effect: its file is removed when its last reader closes it.",
        high=_LONG_MAX,
        broker_name="log.segment.delete.delay.ms",
        effect=False,
    ),
    TopicSetting(
        "flush.messages",
        SettingKind.LONG,
        str(_LONG_MAX),
        "After how many messages a flush would be forced. No effect: the broker flushes before it acknowledges, unless "
        "it was started with another `flush` setting.",
        low=1,
        high=_LONG_MAX,
        broker_name="log.flush.interval.messages",
        effect=False,
    ),
    TopicSetting(
        "flush.ms",
        SettingKind.LONG,
        str(_LONG_MAX),
        "After what time a flush would be forced. No effect: see `flush.messages`.",
        high=_LONG_MAX,
        broker_name="log.flush.interval.ms",
        effect=False,
    ),
    _throttled("follower", "receiving"),
    TopicSetting(
        "index.interval.bytes",
        SettingKind.INT,
        "4096",
        "How many bytes would lie between two index entries. No effect: the broker decides by itself.",
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
        "The time after which a message of a compacted topic is compacted at the latest.",
        low=1,
        high=_LONG_MAX,
        broker_name="log.cleaner.max.compaction.lag.ms",
    ),
    TopicSetting(
        "max.message.bytes",
        SettingKind.INT,
        str(MESSAGE_BYTES_MAX),
        "Maximum size of a batch, after compression.",
        high=REQUEST_BYTES_MAX,
        broker_name="message.max.bytes",
    ),
    TopicSetting(
        "message.timestamp.after.max.ms",
        SettingKind.LONG,
        str(_HOUR_MS),
        "How far a timestamp may be ahead of the broker's clock (CreateTime only). Of a compressed batch, the newest "
        "one is checked.",
        high=_LONG_MAX,
        broker_name="log.message.timestamp.after.max.ms",
    ),
    TopicSetting(
        "message.timestamp.before.max.ms",
        SettingKind.LONG,
        str(_LONG_MAX),
        "How far a timestamp may be behind the broker's clock (CreateTime only). Of a compressed batch, the first "
        "and the newest one are checked.",
        high=_LONG_MAX,
        broker_name="log.message.timestamp.before.max.ms",
    ),
    TopicSetting(
        "message.timestamp.type",
        SettingKind.STRING,
        "CreateTime",
        "The timestamp of a message: its producer's (CreateTime) or the broker's (LogAppendTime).",
        choices=("CreateTime", "LogAppendTime"),
        broker_name="log.message.timestamp.type",
    ),
    TopicSetting(
        "min.cleanable.dirty.ratio",
        SettingKind.DOUBLE,
        "0.5",
        "The cleaner compacts a log when at least this share of it is not compacted yet.",
        high=1,
        broker_name="log.cleaner.min.cleanable.ratio",
    ),
    TopicSetting(
        "min.compaction.lag.ms",
        SettingKind.LONG,
        "0",
        "The minimum time before a message of a compacted topic may be compacted.",
        high=_LONG_MAX,
        broker_name="log.cleaner.min.compaction.lag.ms",
    ),
    TopicSetting(
        "min.insync.replicas",
        SettingKind.INT,
        "1",
        "The number of in-sync replicas that a write with acks=all requires.",
        low=1,
        high=_INT_MAX,
        broker_name="min.insync.replicas",
    ),
    TopicSetting(
        "preallocate",
        SettingKind.BOOLEAN,
        "false",
        "Whether a new segment would allocate its file at once. No effect: files grow as they are written.",
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
        "The maximum size of a partition; beyond it the oldest segments are removed; -1: no limit.",
        low=-1,
        high=_LONG_MAX,
        broker_name="log.retention.bytes",
    ),
    TopicSetting(
        "retention.ms",
        SettingKind.LONG,
        str(7 * _DAY_MS),
        "Messages older than this are removed, one whole segment at a time; -1: never. A segment accepts messages for "
        "at most this time, so a message is removed after at most twice the time and one round of maintenance.",
        low=-1,
        high=_LONG_MAX,
        broker_name="log.retention.ms",
    ),
    TopicSetting(
        "segment.bytes",
        SettingKind.INT,
        str(256 * 1024 * 1024),
        "The size of a segment file at which a new one begins.",
        low=16 * 1024,
        high=_INT_MAX,
        broker_name="log.segment.bytes",
    ),
    TopicSetting(
        "segment.index.bytes",
        SettingKind.INT,
        str(10 * 1024 * 1024),
        "The maximum size of a segment's index. No effect: an index has the size that it needs.",
        low=4,
        high=_INT_MAX,
        broker_name="log.index.size.max.bytes",
        effect=False,
    ),
    TopicSetting(
        "segment.jitter.ms",
        SettingKind.LONG,
        "0",
        "By how much `segment.ms` would vary at random. No effect: a segment ends when its first message has that age, "
        "which already differs between partitions.",
        high=_LONG_MAX,
        broker_name="log.roll.jitter.ms",
        effect=False,
    ),
    TopicSetting(
        "segment.ms",
        SettingKind.LONG,
        str(_DAY_MS),
        "The age of a segment file at which a new one begins. Retention and compaction can then process the old one.",
        low=1,
        high=_LONG_MAX,
        broker_name="log.roll.ms",
    ),
    TopicSetting(
        "unclean.leader.election.enable",
        SettingKind.BOOLEAN,
        "false",
        "Whether a replica that is not in sync could become the leader. No effect: a partition has one replica, its "
        "leader.",
        choices=("true", "false"),
        broker_name="unclean.leader.election.enable",
        effect=False,
    ),
)

TABLE: Mapping[str, TopicSetting] = {row.name: row for row in _ROWS}
