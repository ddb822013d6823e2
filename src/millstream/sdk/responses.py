"""What a broker's answers say, as plain values that know nothing of the wire."""

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
    """One partition as the cluster describes it; `leader_id` is -1 while nobody leads."""

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
        """The partition of this number; None where there is none."""
        if 0 <= number < len(self.partitions) and self.partitions[number].number == number:
            return self.partitions[number]
        return next((row for row in self.partitions if row.number == number), None)


class ClusterView(NamedTuple):
    cluster_id: str
    controller_id: int
    brokers: Mapping[int, Broker]
    topics: Mapping[str, TopicView]


class Produced(NamedTuple):
    """What became of a batch. `base_offset` is -1 where the broker cannot say where the first copy lies."""

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


class FetchedBatches(NamedTuple):
    """The stored bytes of whole batches, the first of which may begin before the offset asked for."""

    high_watermark: int
    log_start_offset: int
    batches: memoryview
    place: FilePlace | None = None
    """Where they lie, in a file of this machine, when they did not come themselves."""
    next_offset: int = -1
    """What follows those that lie there."""


class ListedOffset(NamedTuple):
    """A place in a partition; `timestamp_ms` is -1 where the question was not about a time.

    `leader_epoch` is that of the message there, or for the end that of now; -1 where the broker does not say.
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


class ProducerIdentity(NamedTuple):
    producer_id: int
    epoch: int


class ProducerState(NamedTuple):
    """How far a producer is in a partition."""

    epoch: int
    last_sequence: int


class BrokerInfo(NamedTuple):
    """A broker's account of itself. `warning` says what is wrong where client and broker are too far apart."""

    node_id: int
    cluster_id: str
    version: str
    client_version_min: str
    client_version_max: str
    server_time_ms: int
    features: Mapping[str, str]
    warning: str


def refusal(number: int, concerns: str, text: str | None = None) -> MillstreamError:
    """The error a broker answered with, saying what it concerned, unless the broker's text has that name in it."""
    name = concerns[concerns.find("'") :] if "'" in concerns else None
    if text and name and name in text:
        return MillstreamError.from_number(number, text)
    return MillstreamError.from_number(number, f"{concerns}: {text or ErrorCode.of(number).meaning}")
