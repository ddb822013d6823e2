"""Subscribe, a Millstream API: opens a push subscription and answers with its start offsets; messages follow.

The handler fetches the group's committed offsets only if a partition starts at one. A partition that cannot be read
gets an error in its row and is left out. If no partition is left, there is no subscription.
"""

from collections.abc import Mapping

from millstream.broker.dispatch.capabilities import PartitionLookup, find_partition, leader_for
from millstream.broker.dispatch.request import Answer, BrokerRequest, Result, Work
from millstream.broker.group_requests import GroupCoordination, answer_to
from millstream.broker.push.flow_control import FlowWindow
from millstream.broker.push.partition_push import PartitionName, PartitionPush
from millstream.broker.push.subscription import PushSubscription
from millstream.broker.push.subscriptions import Subscriptions
from millstream.groups.commands import FetchOffsets
from millstream.groups.responses import OffsetsResponse
from millstream.model.authorization import Access
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset, TopicId
from millstream.model.names import NO_TOPIC_ID
from millstream.partition.leadership import Leadership
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
        from_committed = tuple(name for name, each in wanted.items() if each["offset"] == COMMITTED)
        try:
            if group_id:
                request.access.check_group(group_id)
            if from_committed and not group_id:
                raise MillstreamError(
                    ErrorCode.INVALID_REQUEST, "offset -3 (committed) needs a group, but the request names none"
                )
            subscription = self._subscriptions.open(
                request.push_channel,
                request.correlation_id,
                partitions=len(wanted),
                window=FlowWindow(fields["window_messages"], fields["window_bytes"], fields["share_percent"]),
                group_id=group_id,
                otherwise=fields["otherwise"],
            )
        except MillstreamError as error:
            return write_delivery((), error.code.number, error.detail)
        if from_committed:
            command = FetchOffsets(group_id, from_committed)
            return Work(self._open_at_committed(subscription, wanted, command, request.access))
        return self._open(subscription, wanted, {}, request.access)

    async def _open_at_committed(
        self, subscription: PushSubscription, wanted: dict[PartitionName, Fields], command: FetchOffsets, access: Access
    ) -> Answer:
        found = await answer_to(self._groups, command, OffsetsResponse, access)
        if found.error is not ErrorCode.NONE:
            subscription.drop()
            return write_delivery((), found.error.number, f"cannot fetch the offsets of group {command.group_id!r}")
        committed = {name: each.offset for name, each in found.offsets.items()}
        return self._open(subscription, wanted, committed, access)

    def _open(
        self,
        subscription: PushSubscription,
        wanted: dict[PartitionName, Fields],
        committed: Mapping[PartitionName, int],
        access: Access,
    ) -> Answer:
        rows: list[Delivery] = []
        feeds: list[PartitionPush] = []
        refusal: MillstreamError | None = None
        for name, each in wanted.items():
            try:
                partition = self._partition(*name, each["topic_id"], access)
                feed = self._feed(partition, each, committed.get(name), otherwise=subscription.otherwise)
            except MillstreamError as error:
                refusal = error
                leader = leader_for(error, self._partitions.image, *name)
                rows.append(Delivery(*name, error.code.number, message=error.detail, current_leader=leader))
            else:
                feeds.append(feed)
                rows.append(feed.row())
        if not feeds and refusal is not None:
            subscription.drop()
            return write_delivery(rows, refusal.code.number, refusal.detail)
        subscription.add(feeds)
        return write_delivery(rows)

    def _partition(self, topic: str, number: int, topic_id: TopicId, access: Access) -> Leadership:
        """Find a partition by topic id, or by name if no id is given. The name must match the id."""
        if topic_id == NO_TOPIC_ID:
            return find_partition(self._partitions, topic, number, access)
        partition = find_partition(self._partitions, topic_id, number, access)
        if partition.topic != topic:
            text = f"topic id {topic_id} belongs to {partition.topic!r}, not to {topic!r}"
            raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_ID, text)
        return partition

    def _feed(self, partition: Leadership, wanted: Fields, committed: int | None, *, otherwise: int) -> PartitionPush:
        partition.check_leader_epoch(wanted["leader_epoch"])
        offset = wanted["offset"]
        if offset == COMMITTED:
            offset = otherwise if committed is None else committed
        if offset in (END, BEGINNING):
            return PartitionPush(partition, _end_of(partition, offset), otherwise, self._partitions)
        if offset < 0:
            why = "the group has no committed offset" if offset == COMMITTED else f"{offset} is not a valid offset"
            raise MillstreamError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition.topic}-{partition.number}: {why}")
        start = partition.log.start_offset
        if offset < start:
            if otherwise not in (END, BEGINNING):
                text = f"offset {offset} of {partition.topic}-{partition.number} was deleted; the log starts at {start}"
                raise MillstreamError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
            offset = _end_of(partition, otherwise)
        return PartitionPush(partition, offset, otherwise, self._partitions)


def _end_of(partition: Leadership, which: int) -> Offset:
    """Return the log start offset or the high watermark. Raises the error of a read if the partition is unreadable."""
    end = partition.high_watermark if which == END else partition.log.start_offset
    partition.reader.check(end)
    return end
