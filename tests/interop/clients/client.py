"""What every client can be asked to do, whatever its own way of doing it: the matrix is written against this."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]
TIMEOUT_S = 30.0
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


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


class RefusedError(Exception):
    """The broker said no; with Kafka's number of the error, as the client knows it."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"{number}: {text}")
        self.number = number


class Client(ABC):
    """One implementation of Kafka's protocol. Each call stands for itself and leaves nothing running."""

    name: str

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

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

    def close(self) -> None:
        """Release what the client keeps between calls; most keep nothing."""
        return


class AdminClient(Client):
    """A client that can also create and delete topics."""

    @abstractmethod
    def create_topic(
        self, name: str, partitions: int, *, replication_factor: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic; RefusedError tells why not."""

    @abstractmethod
    def delete_topic(self, name: str) -> None:
        """Delete a topic; RefusedError tells why not."""


class ToldSetting(NamedTuple):
    """A topic's setting as a client shows it; `is_own`: the topic has set it, it is nobody's default."""

    value: str
    is_own: bool


class ToldCluster(NamedTuple):
    cluster_id: str
    controller: int
    brokers: Mapping[int, tuple[str, int]]


class SettingsClient(AdminClient):
    """A client that can also look after topics that are there; `incremental`: it can change single settings."""

    incremental: bool = True

    @abstractmethod
    def settings(self, topic: str) -> Mapping[str, ToldSetting]:
        """All settings of a topic."""

    @abstractmethod
    def replace_settings(self, topic: str, settings: Mapping[str, str]) -> None:
        """Let the topic have these settings and no other."""

    @abstractmethod
    def change_settings(self, topic: str, settings: Mapping[str, str | None]) -> None:
        """Set some settings; None: back to the default."""

    @abstractmethod
    def grow(self, topic: str, total: int) -> None:
        """Let the topic have `total` partitions."""

    @abstractmethod
    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Delete what lies before an offset; where the partition begins then."""

    @abstractmethod
    def cluster(self) -> ToldCluster: ...
