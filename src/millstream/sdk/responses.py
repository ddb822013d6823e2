"""Defines brokers' responses as plain values, independent of the wire format."""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.seams.file_part import FilePlace


class Broker(NamedTuple):
    node_id: int
    host: str
    port: int


class PartitionView(NamedTuple):
    """One partition of a topic; `leader_id` is -1 while it has no leader."""

    number: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class TopicView(NamedTuple):
    name: str
    topic_id: UUID
    is_internal: bool
    error_number: int
    partitions: tuple[PartitionView, ...]

    def partition(self, number: int) -> PartitionView | None:
        """Return the partition with this number; None if it does not exist."""
        if 0 <= number < len(self.partitions) and self.partitions[number].number == number:
            return self.partitions[number]
        return next((row for row in self.partitions if row.number == number), None)


class ClusterView(NamedTuple):
    cluster_id: str
    controller_id: int
    brokers: Mapping[int, Broker]
    topics: Mapping[str, TopicView]


class Produced(NamedTuple):
    """The result of a write. `base_offset` is -1 if the broker no longer knows the offset of an earlier copy."""

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


class FetchedBatches(NamedTuple):
    """The stored bytes of whole batches. The first batch may begin before the requested offset."""

    high_watermark: int
    log_start_offset: int
    batches: memoryview
    place: FilePlace | None = None
    """The position of the batches in a file of this machine, if the response has no batches itself."""
    next_offset: int = -1
    """The offset after the batches in that file."""


class ListedOffset(NamedTuple):
    """An offset of a partition. `timestamp_ms` is -1 unless the request was for a time.

    `leader_epoch` is the epoch of the message at that offset, or the current epoch for the end of the log. It is -1 if
    the broker does not report it.
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


class ProducerIdentity(NamedTuple):
    producer_id: int
    epoch: int


class ProducerState(NamedTuple):
    """The epoch and the last sequence number of a producer in a partition."""

    epoch: int
    last_sequence: int


class BrokerInfo(NamedTuple):
    """A broker's description of itself. `warning` has the reason if the versions of client and broker do not match."""

    node_id: int
    cluster_id: str
    version: str
    client_version_min: str
    client_version_max: str
    server_time_ms: int
    features: Mapping[str, str]
    warning: str


class NotLeaderError(MillstreamError):
    """A broker's refusal that names the partition's leader."""

    def __init__(
        self,
        refused: MillstreamError,
        *,
        leader_id: int,
        leader_epoch: int,
        broker: Broker | None = None,
        not_appended: bool = False,
    ) -> None:
        super().__init__(refused.code, refused.detail)
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.broker = broker
        """The leader's address; None if the response has none."""
        self.not_appended = not_appended
        """True if the broker reports that it refused a batch before it appended anything."""


def refusal(number: int, concerns: str, text: str | None = None) -> MillstreamError:
    """Return a broker's error, with `concerns` before its text unless the text already contains that name."""
    name = concerns[concerns.find("'") :] if "'" in concerns else None
    if text and name and name in text:
        return MillstreamError.from_number(number, text)
    return MillstreamError.from_number(number, f"{concerns}: {text or ErrorCode.of(number).meaning}")
