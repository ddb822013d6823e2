"""Implements group consumers over HTTP. Any gateway can serve each request, because it names group and consumer."""

import msgspec

from millstream.gateway.failures import contradictory, missing
from millstream.gateway.http.operation_table import Example, WebOperation
from millstream.gateway.http.resources.common_parameters import CONSUMER_NAMES, ClusterName, ConsumerNames, EmptyBody
from millstream.gateway.http.resources.read_parameters import ReadParameters
from millstream.gateway.http.web_request import WebRequest
from millstream.gateway.operations import group_consumers
from millstream.gateway.operations.clusters import DEFAULT, ServedCluster
from millstream.gateway.operations.reads import ReadLimits, group_start
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.rights import Right
from millstream.model.start_words import GROUP_START


class ConsumerCommit(ConsumerNames, forbid_unknown_fields=True, kw_only=True):
    """Commits the last delivery of this consumer, which `group` and `consumer` name, or `consumer_id` alone."""

    cluster: ClusterName = DEFAULT

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group is None or self.consumer is None:
            raise missing("group" if self.group is None else "consumer", CONSUMER_NAMES)


class CommittedPosition(msgspec.Struct, kw_only=True):
    topic: str
    partition: int
    offset: int


class Committed(msgspec.Struct, kw_only=True):
    """The committed offset of each partition that had something to commit."""

    group: str
    consumer: str
    offsets: list[CommittedPosition]


async def poll_in_group(
    cluster: ServedCluster, parameters: ReadParameters, limits: ReadLimits
) -> group_consumers.PollResult:
    """Return the consumer's last delivery if it is not committed yet, otherwise the next messages."""
    assert parameters.group is not None
    assert parameters.consumer is not None
    for name in ("partition", "time"):
        if getattr(parameters, name) is not None:
            raise contradictory(name, "not allowed with a group; the group assigns partitions and keeps the position")
    start = GROUP_START if parameters.offset is None else group_start(str(parameters.offset), "offset")
    return await group_consumers.poll(
        cluster,
        [parameters.topic],
        parameters.group,
        parameters.consumer,
        limits,
        auto_commit=parameters.auto_commit,
        start=start,
    )


async def post_offset(request: WebRequest) -> Committed:
    """Commit the last delivery of the consumer."""
    wanted: ConsumerCommit = request.body
    assert wanted.group is not None
    assert wanted.consumer is not None
    cluster = request.site.clusters.get(wanted.cluster)
    try:
        found = await group_consumers.commit(cluster, wanted.group, wanted.consumer)
    except MillstreamError as error:
        if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
            raise
        who = f"consumer {wanted.consumer!r} is not in group {wanted.group!r}, or its session has ended"
        raise MillstreamError(error.code, f"{who}; poll with GET /events first") from error
    places = [
        CommittedPosition(topic=topic, partition=partition, offset=offset)
        for (topic, partition), offset in sorted(found.items())
    ]
    return Committed(group=wanted.group, consumer=wanted.consumer, offsets=places)


POST_OFFSET = WebOperation(
    "POST",
    "/offset",
    "postOffset",
    "Commit a consumer's last delivery",
    Right.GROUPS_WRITE,
    post_offset,
    parameters=EmptyBody,
    body=ConsumerCommit,
    answer=Committed,
    concerns="group",
    group="Events",
    errors=(ErrorCode.UNKNOWN_CLUSTER, ErrorCode.INVALID_GROUP_ID, ErrorCode.UNKNOWN_MEMBER_ID),
    examples=(
        Example("A consumer", "/offset", {"group": "billing", "consumer": "a"}),
        Example("With `consumer_id`", "/offset", {"group": "billing", "consumer_id": "a"}),
    ),
    details="""\
Commits the offsets after the messages that the consumer received last, through any gateway. Partitions that moved to
another consumer since are left out: that consumer receives their messages again. `consumer_id` is a text or a number;
without `group` it selects the group `consumer-<id>`, as in `GET /events`.""",
)
