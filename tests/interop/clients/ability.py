"""What a client may be asked to do: the rows of the table in docs/kafka-clients.md.

Every client is held to every row, except those that it says it cannot do at all, with the reason.
"""

from enum import Enum


class Ability(Enum):
    CREATE = "create a topic"
    GZIP = "produce with gzip"
    SNAPPY = "produce with snappy"
    LZ4 = "produce with lz4"
    ZSTD = "produce with zstd"
    PLACE = "produce to a chosen partition"
    CONSUME = "consume from an offset"
    TIME = "find the offset for a time"
    GROUP = "share a group, take over when a member leaves"
    COOPERATIVE = "keep partitions through a rebalance"
    NEW_GROUP = "groups of the new protocol"
    COMMIT = "commit, and resume from there"
    RESET = "set a group back"
    DESCRIBE_GROUP = "describe a group"
    DELETE_GROUP = "delete a group"
    DESCRIBE = "describe a topic's settings"
    ALTER = "alter a topic's settings"
    GROW = "add partitions"
    TRIM = "delete records"
    DELETE = "delete a topic"
    CUT = "idempotent produce while the connection is cut"
    RESTART = "produce and consume through a restart of the broker"
