"""Defines the results and errors of adapters, the same for every interface."""

from typing import NamedTuple


class Refused(Exception):  # noqa: N818 - it is an answer of the other side, not an error of the test
    """An error of the table, by name. `field` is the blamed field, if the interface reports it."""

    def __init__(self, name: str, field: str | None = None, text: str = "", title: str = "") -> None:
        super().__init__(f"{name} ({field}): {text}")
        self.name = name
        self.field = field
        self.title = title


class TopicRow(NamedTuple):
    name: str
    partitions: int
    messages: int


class PartitionRow(NamedTuple):
    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    first: int
    next: int


class Stored(NamedTuple):
    partition: int
    offset: int


class StoredOnce(NamedTuple):
    partition: int
    offset: int
    duplicate: bool


class Read(NamedTuple):
    offset: int
    value: str


class Place(NamedTuple):
    topic: str
    partition: int


class InFlight(NamedTuple):
    client_id: str
    topic: str
    partition: int


class Made(NamedTuple):
    """A local cluster."""

    name: str
    brokers: int
    is_stopped: bool
