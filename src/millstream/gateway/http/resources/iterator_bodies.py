"""Defines the request and response bodies of the iterator calls."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from millstream.gateway.http.resources.common_parameters import (
    START_WORDS_TEXT,
    ClusterName,
    ConsumerParameters,
    Partition,
    TopicName,
)
from millstream.gateway.http.resources.event_json import EventView, Format
from millstream.gateway.http.resources.unit_fields import InFlight, OnBadBatch, ReadBytes, Wait
from millstream.gateway.operations import iterators
from millstream.gateway.operations.clusters import DEFAULT
from millstream.model.start_words import GROUP_START
from millstream.sdk.connection.address import Address
from millstream.sdk.iterating.requests import GroupIterator, IteratorMembership, ListedIterator
from millstream.sdk.reader_defaults import ITERATOR_MESSAGES

Count = Annotated[int, Meta(ge=0, le=2**31 - 1, description="Number of offsets, counted from the iterator's offset.")]


class IteratorBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The right to read some messages for a group. Send it back as received; only topic, partition and token are
    required.
    """

    topic: TopicName
    partition: Partition
    token: Annotated[bytes, Meta(min_length=1, max_length=4096)]
    """The signed token that brokers verify, as base64."""
    offset: Annotated[int, Meta(ge=-2, le=2**63 - 1)] = 0
    """First offset; -2 is the beginning of the log, -1 its end."""
    max_messages: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    generation: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    host: str = ""
    """The server of the partition, for clients that read there directly. A gateway ignores host and port."""
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
    """A consumer's membership. It must send a heartbeat every `heartbeat_s` and is removed after `session_s` without
    one.
    """

    group: str
    consumer: str
    generation: int
    settled: bool
    """True if the consumer owns all partitions of its assignment; false during a rebalance."""
    heartbeat_s: float
    session_s: float
    owned: list["OwnedPartition"]


class OwnedPartition(msgspec.Struct, kw_only=True):
    topic: str
    partition: int


class IteratorOptionsBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Requests an iterator of a partition at the group's position."""

    topic: TopicName
    partition: Partition = 0
    max_messages: Annotated[int, Meta(ge=1, le=2**31 - 1, description="Most messages that the iterator covers.")] = (
        ITERATOR_MESSAGES
    )
    in_flight_ms: InFlight | None = None
    start: Annotated[str, Meta(description=f"Start of a group without a committed offset: {START_WORDS_TEXT}.")] = (
        GROUP_START
    )


class ListedInFlight(msgspec.Struct, kw_only=True):
    """An iterator that a consumer has in flight. `delivered` counts the delivered offsets, from `offset` on."""

    consumer: str
    topic: str
    partition: int
    offset: int
    generation: int
    left_s: float
    delivered: int
    iterator: IteratorBody | UnsetType = UNSET
    """Present if the request named one consumer."""


class ListedIterators(msgspec.Struct, kw_only=True):
    group: str
    iterators: list[ListedInFlight]


class IteratorRead(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The iterator to read, with size limit and wait."""

    iterator: IteratorBody
    cluster: ClusterName = DEFAULT
    wait: Wait = 5.0
    max_bytes: ReadBytes = 2**20
    format: Annotated[
        Format, Meta(description="Format of values: `auto` (text, or base64 if not UTF-8), `text`, `json` or `base64`.")
    ] = "auto"
    on_bad_batch: OnBadBatch = "raise"

    @property
    def topic(self) -> str:
        return self.iterator.topic


class ReadEvents(msgspec.Struct, kw_only=True):
    """Messages, the iterator to commit, and the next iterator.

    To commit all messages, commit `end_offset` minus the iterator's offset. `next` is null after a rebalance.
    """

    iterator: IteratorBody
    events: list[EventView]
    end_offset: int
    next: IteratorBody | None


class DeliveryReport(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Reports how many offsets of an iterator were delivered."""

    iterator: IteratorBody
    count: Count


class DeliveryReported(msgspec.Struct, kw_only=True):
    left_s: float
    """Seconds until the iterator expires."""


class IteratorCommitBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Commits `count` offsets of an iterator, or with `delivered` what was reported as delivered."""

    iterator: IteratorBody
    count: Count | None = None
    delivered: bool = False


class CommittedIterator(msgspec.Struct, kw_only=True):
    """The group's position, and the next iterator if the consumer keeps the partition."""

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
        delivered=row.delivered,
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
