"""SubscriptionCommit: one of Millstream's own keys. What a subscriber has done with makes room for more.

With a group, offsets are stored as those of OffsetCommit are; they make room, and are acknowledged, once they are
durable. A partition's commit that is refused makes no room.
"""

from millstream.broker.dispatch.request import BrokerRequest, Result
from millstream.broker.group_requests import GroupCoordination, answer_later
from millstream.broker.push.subscription import PartitionPush, PushSubscription
from millstream.broker.push.subscriptions import subscription_on
from millstream.groups.commands import CommitOffsets, OffsetToCommit
from millstream.groups.responses import PartitionErrors
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.wire.messages import read_request, write_response
from millstream.wire.schema_readers import Fields

API = "SubscriptionCommit"


class SubscriptionCommitHandler:
    def __init__(self, groups: GroupCoordination) -> None:
        self._groups = groups

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        try:
            subscription = subscription_on(request.push_channel, fields["subscription_id"])
        except MillstreamError as error:
            return write_response(
                API, request.version, {"error_code": error.code.number, "error_message": error.detail}
            )
        commit = _Commit(request.version, subscription, fields["topics"])
        if subscription.group_id is None or not commit.offsets:
            return commit.finish(PartitionErrors())
        command = CommitOffsets(
            group_id=subscription.group_id,
            generation=fields["generation_id_or_member_epoch"],
            member_id=fields["member_id"],
            instance_id=fields["group_instance_id"],
            offsets=tuple(commit.offsets),
        )
        return answer_later(self._groups, command, PartitionErrors, commit.finish)


class _Commit:
    """What is to be committed, and the errors of what cannot be."""

    def __init__(self, version: int, subscription: PushSubscription, topics: list[Fields]) -> None:
        self.offsets: list[OffsetToCommit] = []
        self._version = version
        self._subscription = subscription
        self._topics = topics
        self._feeds: list[tuple[PartitionPush, int]] = []
        self._errors: dict[tuple[str, int], ErrorCode] = {}
        for topic in topics:
            for each in topic["partitions"]:
                self._add((topic["name"], each["partition"]), each)

    def _add(self, place: tuple[str, int], wanted: Fields) -> None:
        feed, offset = self._subscription.feeds.get(place), wanted["offset"]
        if feed is None or feed.partition.is_closed:
            self._errors[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif not 0 <= offset <= feed.lane.position:
            self._errors[place] = ErrorCode.OFFSET_OUT_OF_RANGE
            return
        else:
            metadata = wanted["metadata"] or ""
            self.offsets.append(OffsetToCommit(*place, offset, wanted["leader_epoch"], metadata))
        if feed is not None:
            self._feeds.append((feed, offset))

    def finish(self, stored: PartitionErrors) -> bytes:
        """Make room for what was stored, and say what was not."""
        errors = stored.errors | self._errors
        if stored.error is not ErrorCode.NONE:
            errors = {(each.topic, each.partition): stored.error for each in self.offsets} | self._errors
        self._subscription.commit(
            (feed, offset) for feed, offset in self._feeds if feed.partition.is_closed or feed.place not in errors
        )
        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition": each["partition"],
                        "error_code": errors.get((topic["name"], each["partition"]), ErrorCode.NONE).number,
                    }
                    for each in topic["partitions"]
                ],
            }
            for topic in self._topics
        ]
        return write_response(API, self._version, {"topics": topics})
