"""SubscriptionCommit, a Millstream API: commits processed messages, which frees space in the subscription's window.

With a group, the offsets are stored like those of OffsetCommit. They free the space, and the request is answered, once
they are durable. A refused commit of a partition frees nothing.
"""

from millstream.broker.dispatch.request import BrokerRequest, Result
from millstream.broker.group_requests import GroupCoordination, answer_later
from millstream.broker.push.partition_push import PartitionPush
from millstream.broker.push.subscription import PushSubscription
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
        return answer_later(self._groups, command, PartitionErrors, commit.finish, request.access)


class _Commit:
    """The offsets to commit, and the errors of the partitions that are refused."""

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

    def _add(self, key: tuple[str, int], wanted: Fields) -> None:
        feed, offset = self._subscription.feeds.get(key), wanted["offset"]
        if feed is None or feed.partition.is_closed:
            self._errors[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif not 0 <= offset <= feed.flow.position:
            self._errors[key] = ErrorCode.OFFSET_OUT_OF_RANGE
            return
        else:
            metadata = wanted["metadata"] or ""
            self.offsets.append(OffsetToCommit(*key, offset, wanted["leader_epoch"], metadata))
        if feed is not None:
            self._feeds.append((feed, offset))

    def finish(self, stored: PartitionErrors) -> bytes:
        """Free the window space of the stored offsets and return the response, with an error for each other one."""
        errors = stored.errors | self._errors
        if stored.error is not ErrorCode.NONE:
            errors = {(each.topic, each.partition): stored.error for each in self.offsets} | self._errors
        self._subscription.commit(
            (feed, offset) for feed, offset in self._feeds if feed.partition.is_closed or feed.name not in errors
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
