"""The role of a connection: what it may do besides asking. Once declared, it is final."""

from enum import IntEnum

PRODUCER_GROUP_MAX = 249


class Role(IntEnum):
    """By its number on the wire."""

    PRODUCER = 1
    CONSUMER = 2
