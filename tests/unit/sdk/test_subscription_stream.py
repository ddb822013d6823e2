"""Tests the offsets of one stream of a subscription."""

import asyncio
from uuid import UUID

import pytest

from builders.batches import numbered_batch
from millstream.model.broker_endpoint import BrokerEndpoint
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import BrokerId, TopicId
from millstream.model.names import TopicPartition
from millstream.sdk.connection.address import Address
from millstream.sdk.feed.fetched_chunk import FetchedChunk
from millstream.sdk.feed.partition_feed import PartitionFeed
from millstream.sdk.responses import Broker, NotLeaderError
from millstream.sdk.subscribing.options import StreamSettings, SubscriptionWindow
from millstream.sdk.subscribing.stream import StreamOwner, SubscriptionStream
from millstream.seams.entropy import SystemEntropy
from millstream.wire.current_leader import CurrentLeader
from millstream.wire.subscribe import BEGINNING, Delivered, Delivery

WHERE = TopicPartition("orders", 0)


def row(first: int, end: int) -> Delivery:
    records = memoryview(numbered_batch(end - first, base_offset=first)) if end > first else b""
    return Delivery(*WHERE, leader_epoch=0, position=first, next_offset=end, high_watermark=100, records=records)


def opened(arrived: list[FetchedChunk], refused: list[MillstreamError] | None = None) -> SubscriptionStream:
    errors = [] if refused is None else refused
    owner = StreamOwner(arrived.append, lambda _, __, error: errors.append(error), lambda *_: None, lambda _: None)
    settings = StreamSettings(SubscriptionWindow(1_000, 1_000_000, 50), "billing", BEGINNING, SystemEntropy())
    feed = PartitionFeed(WHERE, 0, TopicId(UUID(int=1)))
    return SubscriptionStream(Address("broker", 9092), [feed], settings, owner)


def test_messages_delivered_before_the_subscribe_response_stay_unfinished() -> None:
    async def story() -> None:
        arrived: list[FetchedChunk] = []
        stream = opened(arrived)
        stream._deliver(Delivered(0, None, [row(0, 10)]))
        stream._deliver(Delivered(0, None, [row(0, 0)]))  # The response to Subscribe.
        stream._deliver(Delivered(0, None, [row(10, 20)]))
        assert [(chunk.offset, chunk.next_offset) for chunk in arrived] == [(0, 10), (10, 20)]
        assert stream.places == {WHERE: 20}
        assert stream._due() == (0, 20), "the caller has finished nothing"

    asyncio.run(story())


def test_messages_removed_before_their_delivery_count_as_finished() -> None:
    async def story() -> None:
        stream = opened([])
        stream._deliver(Delivered(0, None, [row(7, 10)]))
        assert stream._due() == (0, 3)

    asyncio.run(story())


def test_a_stream_asserts_that_only_received_messages_are_finished() -> None:
    async def story() -> None:
        stream = opened([])
        stream._deliver(Delivered(0, None, [row(0, 10)]))
        with pytest.raises(AssertionError, match="unread messages"):
            stream.finish(WHERE, 11)

    asyncio.run(story())


def test_a_refused_partition_reports_the_leader_that_the_delivery_names() -> None:
    async def story() -> None:
        refused: list[MillstreamError] = []
        stream = opened([], refused)
        leader = CurrentLeader(2, 7, BrokerEndpoint(BrokerId(2), "broker-2", 9092, None))
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER.number
        stream._deliver(Delivered(0, None, [Delivery(*WHERE, code, current_leader=leader)]))
        (error,) = refused
        assert isinstance(error, NotLeaderError)
        assert (error.leader_id, error.leader_epoch, error.broker) == (2, 7, Broker(2, "broker-2", 9092))

    asyncio.run(story())
