"""Subscribe: one of Millstream's own keys. Answered once with the places it begins at; the messages follow by
themselves.

The group's offsets are asked for only where a place is to be the group's. A partition that cannot be had is told in its
row and left out; with none left there is no subscription.
"""

from uuid import UUID

from millstream.broker.dispatch.capabilities import PartitionLookup, find_partition
from millstream.broker.dispatch.request import Answer, BrokerRequest, Result, Work
from millstream.broker.group_requests import GroupCoordination, answer_to
from millstream.broker.push.flow_control import FlowWindow
from millstream.broker.push.subscription import PartitionPush, Place, PushSubscription
from millstream.broker.push.subscriptions import Subscriptions
from millstream.groups.commands import FetchOffsets
from millstream.groups.responses import OffsetsResponse
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import NO_TOPIC_ID
from millstream.partition.partition import Partition
from millstream.wire.messages import read_request
from millstream.wire.schema_readers import Fields
from millstream.wire.subscribe import BEGINNING, COMMITTED, END, Delivery, write_delivery

API = "Subscribe"


class SubscribeHandler:
    def __init__(self, partitions: PartitionLookup, groups: GroupCoordination, subscriptions: Subscriptions) -> None:
        self._partitions = partitions
        self._groups = groups
        self._subscriptions = subscriptions

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        wanted = {
            (topic["name"], each["partition"]): {"topic_id": topic["topic_id"], **each}
            for topic in fields["topics"]
            for each in topic["partitions"]
        }
        group_id = fields["group_id"]
        at_group = tuple(place for place, each in wanted.items() if each["offset"] == COMMITTED)
        try:
            if at_group and not group_id:
                raise MillstreamError(
                    ErrorCode.INVALID_REQUEST, "an offset of -3 is where the group is; no group is named"
                )
            subscription = self._subscriptions.open(
                request.push_channel,
                request.correlation_id,
                len(wanted),
                FlowWindow(fields["window_messages"], fields["window_bytes"], fields["share_percent"]),
                group_id=group_id,
                otherwise=fields["otherwise"],
            )
        except MillstreamError as error:
            return write_delivery((), error.code.number, error.detail)
        if at_group:
            return Work(self._at_group(subscription, wanted, FetchOffsets(group_id, at_group)))
        return self._open(subscription, wanted, {})

    async def _at_group(
        self, subscription: PushSubscription, wanted: dict[Place, Fields], command: FetchOffsets
    ) -> Answer:
        found = await answer_to(self._groups, command, OffsetsResponse)
        if found.error is not ErrorCode.NONE:
            subscription.drop()
            return write_delivery((), found.error.number, f"the offsets of {command.group_id!r} cannot be had")
        return self._open(subscription, wanted, {place: each.offset for place, each in found.offsets.items()})

    def _open(self, subscription: PushSubscription, wanted: dict[Place, Fields], committed: dict[Place, int]) -> Answer:
        rows: list[Delivery] = []
        feeds: list[PartitionPush] = []
        refusal: MillstreamError | None = None
        for place, each in wanted.items():
            try:
                feed = self._feed(place, each, committed.get(place), subscription.otherwise)
            except MillstreamError as error:
                refusal = error
                rows.append(Delivery(*place, error.code.number, message=error.detail))
            else:
                feeds.append(feed)
                rows.append(feed.row())
        if not feeds and refusal is not None:
            subscription.drop()
            return write_delivery(rows, refusal.code.number, refusal.detail)
        subscription.add(feeds)
        return write_delivery(rows)

    def _partition(self, topic: str, number: int, topic_id: UUID) -> Partition:
        """By its topic's name, or by its id where one is given; the name is then to be that topic's."""
        if topic_id == NO_TOPIC_ID:
            return find_partition(self._partitions, topic, number)
        partition = find_partition(self._partitions, topic_id, number)
        if partition.topic != topic:
            text = f"the topic {topic_id} is {partition.topic!r}, and not {topic!r}"
            raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_ID, text)
        return partition

    def _feed(self, place: Place, wanted: Fields, committed: int | None, otherwise: int) -> PartitionPush:
        partition = self._partition(*place, wanted["topic_id"])
        partition.check_leader_epoch(wanted["leader_epoch"])
        offset = wanted["offset"]
        if offset == COMMITTED:
            offset = otherwise if committed is None else committed
        if offset in (END, BEGINNING):
            return PartitionPush(partition, _end_of(partition, offset))
        if offset < 0:
            why = "the group has committed nothing" if offset == COMMITTED else f"{offset} is no offset"
            raise MillstreamError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition.topic}-{partition.number}: {why}")
        start = partition.log.start_offset
        if offset < start:
            if otherwise not in (END, BEGINNING):
                text = f"{partition.topic}-{partition.number} begins at {start}; offset {offset} is gone"
                raise MillstreamError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
            offset = _end_of(partition, otherwise)
        return PartitionPush(partition, offset)


def _end_of(partition: Partition, which: int) -> int:
    """The offset at one of its ends; what reading refuses where nobody knows it."""
    end = partition.high_watermark if which == END else partition.log.start_offset
    partition.check_offset(end)
    return end
