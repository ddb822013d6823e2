"""Defines the role that a connection may declare. A declared role is final."""

from enum import IntEnum

PRODUCER_GROUP_MAX = 249


class Role(IntEnum):
    """The role of a connection. The value is its number on the wire."""

    PRODUCER = 1
    CONSUMER = 2
