"""What adapters give and raise, the same on every interface."""

from typing import NamedTuple


class Refused(Exception):  # noqa: N818 - it is what the other side says, not what went wrong here
    """A failure by its name in the error table; `field` is what is to blame, where the interface tells."""

    def __init__(self, name: str, field: str | None = None, text: str = "") -> None:
        super().__init__(f"{name} ({field}): {text}")
        self.name = name
        self.field = field


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
    """A cluster that was made by a call."""

    name: str
    brokers: int
    is_stopped: bool
