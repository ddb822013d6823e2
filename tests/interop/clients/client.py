"""What every client can be asked to do, whatever its own way of doing it: the tests are written against this."""

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
"""How a group is shared out: everybody lets go and is given anew, only what moves is let go, or the broker does it."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message as people mean it. A client that cannot choose the time stamp leaves it None."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None

    def matches(self, other: "Message") -> bool:
        """Whether `other` is this one as far as this one says."""
        return self == (other if self.timestamp_ms is not None else replace(other, timestamp_ms=None))


@dataclass(frozen=True, slots=True)
class Stored:
    """A message with its place."""

    offset: int
    message: Message


@dataclass(frozen=True, slots=True)
class Received:
    """What a member of a group was given."""

    partition: int
    offset: int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as its clients describe it; the state in small letters."""

    state: str
    members: int


class ToldSetting(NamedTuple):
    """A topic's setting as a client shows it; `is_own`: the topic has set it, it is nobody's default."""

    value: str | None
    is_own: bool


class ToldCluster(NamedTuple):
    cluster_id: str
    controller: int
    brokers: Mapping[int, tuple[str, int]]


class RefusedError(Exception):
    """The broker said no; with Kafka's number of the error, as the client knows it."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"{number}: {text}")
        self.number = number


class Member(ABC):
    """A consumer of one topic in a group, which keeps polling by itself until it leaves."""

    @abstractmethod
    def assigned(self) -> frozenset[int]:
        """The partitions it has now."""

    @abstractmethod
    def received(self) -> list[Received]:
        """Everything it was given so far."""

    @abstractmethod
    def commit(self) -> None:
        """Commit what was received. A client that only commits by itself has done so when it has left."""

    @abstractmethod
    def leave(self) -> None:
        """Leave the group and end; leaving twice is leaving once."""


class Stream(ABC):
    """An idempotent producer to partition 0 that stays open."""

    @abstractmethod
    def send(self, messages: Sequence[Message]) -> None:
        """Hand messages over, without waiting for any acknowledgement."""

    @abstractmethod
    def close(self) -> None:
        """Wait until everything is acknowledged, and end; RefusedError when something was not."""


class Client(ABC):
    """One implementation of Kafka's protocol. Calls stand for themselves; members and streams live until ended."""

    name: str
    cannot: ClassVar[Mapping[Ability, str]] = {}

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def at(self, bootstrap: str) -> Self:
        """The same client, talking to another broker."""
        other = copy(self)
        other.bootstrap = bootstrap
        return other

    def expressible(self, messages: Sequence[Message]) -> list[Message]:
        """The messages as this client is able to write them."""
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
        """Write with acks=all, in few batches; the offsets, as far as the client tells them."""

    @abstractmethod
    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Stored]:
        """`count` messages from `offset` on, of an assigned partition, without a group."""

    @abstractmethod
    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        """The earliest offset, and the next that will be given."""

    @abstractmethod
    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The offset of the first message that is not older; None when there is none."""

    @abstractmethod
    def topics(self) -> Mapping[str, int]:
        """The topics with their numbers of partitions."""

    @abstractmethod
    def join(self, group: str, topic: str, protocol: str = EAGER) -> Member:
        """Begin to consume as a member of a group, from the earliest message where nothing is committed."""

    @abstractmethod
    def stream(self, topic: str) -> Stream:
        """Open a producer."""

    def close(self) -> None:
        """Release what the client keeps between calls; most keep nothing."""
        return


class AdminClient(Client):
    """A client that can also administer. Every call raises RefusedError when the broker refuses; what a client has no
    call for is in its `cannot`, and is not asked of it."""

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
        """Let the topic have `total` partitions."""

    @abstractmethod
    def settings(self, topic: str) -> Mapping[str, ToldSetting]:
        """All settings of a topic."""

    @abstractmethod
    def alter(self, topic: str, settings: Mapping[str, str]) -> None:
        """Change settings. A client that only knows the old request replaces all of them."""

    @abstractmethod
    def delete_records(self, topic: str, partition: int, before: int) -> int | None:
        """Delete what lies before an offset; where the partition begins then, if the client tells."""

    @abstractmethod
    def groups(self) -> set[str]:
        """The names of the groups."""

    @abstractmethod
    def describe_group(self, group: str) -> GroupView:
        """One group."""

    @abstractmethod
    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        """Where the group is in each partition that has a commit."""

    @abstractmethod
    def reset_group(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Set a group without members to these offsets."""

    @abstractmethod
    def delete_group(self, group: str) -> None:
        """Delete a group without members."""


class SettingsClient(AdminClient):
    """A client that has both requests for settings, or only the old one, then it is not `incremental`."""

    incremental: bool = True

    def alter(self, topic: str, settings: Mapping[str, str]) -> None:
        if self.incremental:
            self.change_settings(topic, settings)
        else:
            self.replace_settings(topic, settings)

    @abstractmethod
    def replace_settings(self, topic: str, settings: Mapping[str, str]) -> None:
        """Let the topic have these settings and no other."""

    @abstractmethod
    def change_settings(self, topic: str, settings: Mapping[str, str | None]) -> None:
        """Set some settings; None: back to the default."""

    @abstractmethod
    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Delete what lies before an offset; where the partition begins then."""

    @abstractmethod
    def cluster(self) -> ToldCluster:
        """The brokers, and which of them is the controller."""
