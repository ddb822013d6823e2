"""What is said about iterators, and what is answered: the bodies of their calls."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from millstream.gateway.http.resources.common_parameters import ClusterName, ConsumerParameters, Partition, TopicName
from millstream.gateway.http.resources.event_json import EventView, Format
from millstream.gateway.operations import iterators
from millstream.gateway.operations.clusters import DEFAULT
from millstream.sdk.connection.address import Address
from millstream.sdk.iterating.options import MAX_MESSAGES
from millstream.sdk.iterating.requests import GroupIterator, IteratorMembership, ListedIterator

Count = Annotated[
    int, Meta(ge=0, le=2**31 - 1, description="Places of the log, from the iterator's offset on, that are meant.")
]
Wait = Annotated[float, Meta(ge=0, le=60, description="Seconds to wait for the first message.")]
Bytes = Annotated[int, Meta(ge=1, le=16 * 2**20, description="About the most bytes of one answer.")]


class IteratorBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The right to read some messages for a group. It is given back as it was answered; of that, topic, partition and
    token are needed."""

    topic: TopicName
    partition: Partition
    token: Annotated[bytes, Meta(min_length=1, max_length=4096)]
    """What brokers know it by, as base64."""
    offset: Annotated[int, Meta(ge=-2, le=2**63 - 1)] = 0
    """Where it begins; -2 at the beginning of the log, -1 at its end."""
    max_messages: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    generation: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    host: str = ""
    """The server that has the partition, for those that read there themselves: a gateway asks nobody who is named."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 0

    @property
    def given(self) -> GroupIterator:
        return iterators.given(
            self.topic,
            self.partition,
            self.token,
            offset=self.offset,
            max_messages=self.max_messages,
            generation=self.generation,
        )


class MembershipView(msgspec.Struct, kw_only=True):
    """A consumer in its group. It is to be heard of every `heartbeat_s`, and is out after `session_s` without that."""

    group: str
    consumer: str
    generation: int
    settled: bool
    """Whether it has what it is to have; the group is sharing out otherwise."""
    heartbeat_s: float
    session_s: float
    owned: list["OwnedPartition"]


class OwnedPartition(msgspec.Struct, kw_only=True):
    topic: str
    partition: int


class IteratorOptionsBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An iterator of a partition, from where the group is."""

    topic: TopicName
    partition: Partition = 0
    max_messages: Annotated[int, Meta(ge=1, le=2**31 - 1, description="Most messages that it stands for.")] = (
        MAX_MESSAGES
    )
    in_flight_ms: (
        Annotated[int, Meta(ge=1, le=2**31 - 1, description="How long it may take until it is committed.")] | None
    ) = None
    start: Annotated[
        Literal["beginning", "latest"], Meta(description="Where a group begins that has committed nothing.")
    ] = "beginning"


class ListedInFlight(msgspec.Struct, kw_only=True):
    """What a consumer has in flight: from `offset` on so many places of the log were handed out."""

    consumer: str
    topic: str
    partition: int
    offset: int
    generation: int
    left_s: float
    handed: int
    iterator: IteratorBody | UnsetType = UNSET
    """Where one consumer was asked about."""


class ListedIterators(msgspec.Struct, kw_only=True):
    group: str
    iterators: list[ListedInFlight]


class IteratorRead(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What is read, how much of it, and how long the first message is waited for."""

    iterator: IteratorBody
    cluster: ClusterName = DEFAULT
    wait: Wait = 5.0
    max_bytes: Bytes = 2**20
    format: Annotated[Format, Meta(description="How values are shown.")] = "auto"

    @property
    def topic(self) -> str:
        return self.iterator.topic


class ReadEvents(msgspec.Struct, kw_only=True):
    """Messages; what to commit, of which they are `end_offset` minus its offset places; and the next iterator, which is
    null after the group has shared out anew."""

    iterator: IteratorBody
    events: list[EventView]
    end_offset: int
    next: IteratorBody | None


class DeliveryReport(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How much of an iterator was handed on."""

    iterator: IteratorBody
    count: Count


class DeliveryReported(msgspec.Struct, kw_only=True):
    left_s: float
    """How long it is in flight from now on."""


class IteratorCommitBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How much of an iterator is finished: so many places, or what was handed on."""

    iterator: IteratorBody
    count: Count | None = None
    handed: bool = False


class CommittedIterator(msgspec.Struct, kw_only=True):
    """Where the group goes on, and the next iterator, if the partition stays the consumer's."""

    position: int
    next: IteratorBody | None


def shown_iterator(found: GroupIterator, server: Address | None = None) -> IteratorBody:
    server = server or found.server
    return IteratorBody(
        topic=found.topic,
        partition=found.partition,
        token=found.token,
        offset=found.offset,
        max_messages=found.max_messages,
        generation=found.generation,
        host=server.host,
        port=server.port,
    )


def shown_listed(row: ListedIterator) -> ListedInFlight:
    return ListedInFlight(
        consumer=row.client_id,
        topic=row.where.topic,
        partition=row.where.partition,
        offset=row.offset,
        generation=row.generation,
        left_s=row.left_s,
        handed=row.handed,
        iterator=UNSET if row.iterator is None else shown_iterator(row.iterator),
    )


def shown_membership(of: ConsumerParameters, found: IteratorMembership) -> MembershipView:
    return MembershipView(
        group=of.group,
        consumer=of.consumer,
        generation=found.generation,
        settled=found.is_settled,
        heartbeat_s=found.heartbeat_s,
        session_s=found.session_s,
        owned=[OwnedPartition(topic=topic, partition=partition) for topic, partition in found.owned],
    )
