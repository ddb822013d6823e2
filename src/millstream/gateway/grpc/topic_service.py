"""Implements TopicService: lists, creates, describes, changes and deletes topics."""

from millstream.gateway.grpc.call_handling import Call, needs
from millstream.gateway.grpc.message_conversion import to_setting
from millstream.gateway.grpc.v1 import topics_pb2 as pb
from millstream.gateway.operations import topics
from millstream.model.rights import Right
from millstream.sdk.admin.topic_sizes import PartitionSize, TopicSize


class TopicService:
    @needs(Right.TOPICS_READ)
    async def list_topics(self, request: pb.ListTopicsRequest, call: Call) -> pb.ListTopicsResponse:
        cluster = call.cluster(request.cluster)
        limit = request.page_size or topics.PAGE_TOPICS
        page = await topics.list_topics(cluster, limit, request.page_token or None, call.timeout_s(cluster))
        return pb.ListTopicsResponse(topics=map(_summary, page.rows), next_page_token=page.after or "")

    @needs(Right.TOPICS_WRITE, "name")
    async def create_topic(self, request: pb.CreateTopicRequest, call: Call) -> pb.CreateTopicResponse:
        cluster = call.cluster(request.cluster)
        topic_id = await topics.create_topic(
            cluster,
            request.name,
            call.timeout_s(cluster),
            partitions=request.partitions or topics.BROKERS_CHOICE,
            replication_factor=request.replication_factor or topics.BROKERS_CHOICE,
            settings=dict(request.settings),
            exist_ok=request.exist_ok,
        )
        return pb.CreateTopicResponse(topic_id=str(topic_id))

    @needs(Right.TOPICS_READ, "topic")
    async def describe_topic(self, request: pb.DescribeTopicRequest, call: Call) -> pb.DescribeTopicResponse:
        cluster = call.cluster(request.cluster)
        view, rows = await topics.describe_topic(cluster, request.topic, call.timeout_s(cluster))
        return pb.DescribeTopicResponse(
            name=view.name,
            topic_id=str(view.topic_id),
            internal=view.is_internal,
            partitions=map(_partition, rows),
        )

    @needs(Right.TOPICS_ADMIN, "topic")
    async def delete_topic(self, request: pb.DeleteTopicRequest, call: Call) -> pb.DeleteTopicResponse:
        cluster = call.cluster(request.cluster)
        await topics.delete_topic(cluster, request.topic, call.timeout_s(cluster))
        return pb.DeleteTopicResponse()

    @needs(Right.TOPICS_ADMIN, "topic")
    async def add_partitions(self, request: pb.AddPartitionsRequest, call: Call) -> pb.AddPartitionsResponse:
        cluster = call.cluster(request.cluster)
        timeout_s = call.timeout_s(cluster)
        await topics.add_partitions(
            cluster, request.topic, request.total, timeout_s, validate_only=request.validate_only
        )
        return pb.AddPartitionsResponse()

    @needs(Right.TOPICS_READ, "topic")
    async def get_topic_settings(self, request: pb.GetTopicSettingsRequest, call: Call) -> pb.GetTopicSettingsResponse:
        cluster = call.cluster(request.cluster)
        rows = await topics.topic_settings(cluster, request.topic, request.names, call.timeout_s(cluster))
        return pb.GetTopicSettingsResponse(settings=map(to_setting, rows))

    @needs(Right.TOPICS_ADMIN, "topic")
    async def alter_topic_settings(
        self, request: pb.AlterTopicSettingsRequest, call: Call
    ) -> pb.AlterTopicSettingsResponse:
        cluster = call.cluster(request.cluster)
        await topics.alter_topic_settings(
            cluster,
            request.topic,
            dict(request.set),
            list(request.unset),
            call.timeout_s(cluster),
            validate_only=request.validate_only,
        )
        return pb.AlterTopicSettingsResponse()


def _summary(row: TopicSize) -> pb.TopicSummary:
    return pb.TopicSummary(
        name=row.view.name,
        topic_id=str(row.view.topic_id),
        internal=row.view.is_internal,
        partition_count=len(row.view.partitions),
        message_count=row.messages,
        size_bytes=row.size_bytes,
    )


def _partition(row: PartitionSize) -> pb.PartitionDescription:
    return pb.PartitionDescription(
        partition=row.view.number,
        leader=row.view.leader_id,
        leader_epoch=row.view.leader_epoch,
        replicas=row.view.replicas,
        in_sync=row.view.in_sync,
        first_offset=row.extent.first if row.extent else None,
        next_offset=row.extent.next if row.extent else None,
        size_bytes=row.size_bytes,
    )
