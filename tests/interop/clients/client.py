"""Defines the common interface of all clients, against which the tests are written."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

from interop.clients.ability import Ability

Headers = tuple[tuple[str, bytes | None], ...]
TIMEOUT_S = 30.0
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
EAGER, COOPERATIVE, NEW = "eager", "cooperative", "new"
PROTOCOLS = (EAGER, COOPERATIVE, NEW)
"""Group protocols: eager (all partitions are revoked), cooperative (only moving ones), and the consumer protocol."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message. A client that cannot choose the timestamp leaves it None."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None

    def matches(self, other: "Message") -> bool:
        """True if `other` equals this message in all fields that this one sets."""
        return self == (other if self.timestamp_ms is not None else replace(other, timestamp_ms=None))


@dataclass(frozen=True, slots=True)
class Stored:
    """A message with its offset."""

    offset: int
    message: Message


@dataclass(frozen=True, slots=True)
class Received:
    """A message that a member of a group received."""

    partition: int
    offset: int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as its clients describe it; the state is lower case."""

    state: str
    members: int


class ToldSetting(NamedTuple):
    """A topic's setting as a client reports it; `is_own` is true if it is set on the topic and not a default."""

    value: str | None
    is_own: bool


class ToldCluster(NamedTuple):
    cluster_id: str
    controller: int
    brokers: Mapping[int, tuple[str, int]]


class RefusedError(Exception):
    """The broker refused a request; has Kafka's error number, as far as the client reports it."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"{number}: {text}")
        self.number = number


class Member(ABC):
    """A consumer of one topic in a group, which polls in the background until it leaves."""

    @abstractmethod
    def assigned(self) -> frozenset[int]:
        """Return its current partitions."""

    @abstractmethod
    def received(self) -> list[Received]:
        """Return all messages that it received so far."""

    @abstractmethod
    def commit(self) -> None:
        """Commit the received messages. A client with auto-commit only has committed when it has left."""

    @abstractmethod
    def leave(self) -> None:
        """Leave the group and close; a second call has no effect."""


class Stream(ABC):
    """An open idempotent producer to partition 0."""

    @abstractmethod
    def send(self, messages: Sequence[Message]) -> None:
        """Send messages without waiting for acknowledgements."""

    @abstractmethod
    def close(self) -> None:
        """Wait until all messages are acknowledged, and close; RefusedError if one was refused."""


class Client(ABC):
    """One implementation of Kafka's protocol. Calls are independent; members and streams stay open until closed."""

    name: str
    cannot: ClassVar[Mapping[Ability, str]] = {}

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def at(self, bootstrap: str) -> Self:
        """Return the same client for another broker."""
        other = copy(self)
        other.bootstrap = bootstrap
        return other

    def expressible(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages without the features that this client cannot write."""
        return list(messages)

    @abstractmethod
    def write(
        self,
        topic: str,
        partition: int,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        idempotent: bool = False,
    ) -> list[int]:
        """Write with acks=all, in few batches; returns the offsets if the client reports them."""

    @abstractmethod
    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Stored]:
        """Read `count` messages of an assigned partition from `offset` on, without a group."""

    @abstractmethod
    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the earliest offset and the log end offset."""

    @abstractmethod
    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """Return the offset of the first message at or after this time; None if there is none."""

    @abstractmethod
    def topics(self) -> Mapping[str, int]:
        """Return the topics with their partition counts."""

    @abstractmethod
    def join(self, group: str, topic: str, protocol: str = EAGER) -> Member:
        """Start to consume as a member of a group, from the earliest message if there is no committed offset."""

    @abstractmethod
    def stream(self, topic: str) -> Stream:
        """Open a producer."""

    def close(self) -> None:
        """Release resources that the client keeps between calls; most keep none."""
        return


class AdminClient(Client):
    """A client with admin calls, which raise RefusedError if the broker refuses.

    Tests do not use the calls that the client lists in `cannot`.
    """

    @abstractmethod
    def create_topic(
        self, name: str, partitions: int, *, replication_factor: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic."""

    @abstractmethod
    def delete_topic(self, name: str) -> None:
        """Delete a topic."""

    @abstractmethod
    def grow(self, topic: str, total: int) -> None:
        """Increase the topic to `total` partitions."""

    @abstractmethod
    def settings(self, topic: str) -> Mapping[str, ToldSetting]:
        """Return all settings of a topic."""

    @abstractmethod
    def alter(self, topic: str, settings: Mapping[str, str]) -> None:
        """Change settings. A client with only the old AlterConfigs request replaces all of them."""

    @abstractmethod
    def delete_records(self, topic: str, partition: int, before: int) -> int | None:
        """Delete records before an offset; returns the new log start offset if the client reports it."""

    @abstractmethod
    def groups(self) -> set[str]:
        """Return the names of the groups."""

    @abstractmethod
    def describe_group(self, group: str) -> GroupView:
        """Describe one group."""

    @abstractmethod
    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        """Return the group's committed offsets, by partition."""

    @abstractmethod
    def reset_group(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Set the committed offsets of a group without members."""

    @abstractmethod
    def delete_group(self, group: str) -> None:
        """Delete a group without members."""


class SettingsClient(AdminClient):
    """A client with AlterConfigs and, if it is `incremental`, also IncrementalAlterConfigs."""

    incremental: bool = True

    def alter(self, topic: str, settings: Mapping[str, str]) -> None:
        if self.incremental:
            self.change_settings(topic, settings)
        else:
            self.replace_settings(topic, settings)

    @abstractmethod
    def replace_settings(self, topic: str, settings: Mapping[str, str]) -> None:
        """Replace all settings of the topic by these."""

    @abstractmethod
    def change_settings(self, topic: str, settings: Mapping[str, str | None]) -> None:
        """Change some settings; None resets one to its default."""

    @abstractmethod
    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Delete records before an offset; returns the new log start offset."""

    @abstractmethod
    def cluster(self) -> ToldCluster:
        """Describe the brokers and the controller."""
