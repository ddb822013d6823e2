"""Defines the abilities of clients: the rows of the table in docs/kafka-clients.md.

Every client is tested for every row, except the rows that the client does not support, for which it gives a reason.
"""

from enum import Enum


class Ability(Enum):
    CREATE = "create a topic"
    GZIP = "produce with gzip"
    SNAPPY = "produce with snappy"
    LZ4 = "produce with lz4"
    ZSTD = "produce with zstd"
    PLACE = "produce to a given partition"
    CONSUME = "consume from an offset"
    TIME = "find the offset of a timestamp"
    GROUP = "share a classic group, take over from a member that leaves"
    COOPERATIVE = "cooperative rebalancing in a classic group"
    NEW_GROUP = "groups with the consumer protocol (KIP-848)"
    COMMIT = "commit offsets and resume"
    RESET = "reset a group's offsets"
    DESCRIBE_GROUP = "describe a group"
    DELETE_GROUP = "delete a group"
    DESCRIBE = "describe a topic's settings"
    ALTER = "alter a topic's settings"
    GROW = "add partitions"
    TRIM = "delete records"
    DELETE = "delete a topic"
    CUT = "idempotent produce while connections fail"
    RESTART = "produce and consume across a broker restart"
