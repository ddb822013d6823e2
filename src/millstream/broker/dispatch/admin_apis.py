"""Builds the rows of the dispatch table for the administration of topics, settings and the broker."""

from collections.abc import Iterable

from millstream.broker.config_entries import ConfigEntry
from millstream.broker.config_resources import Resources
from millstream.broker.dispatch.capabilities import ClusterNode
from millstream.broker.dispatch.dispatch_table import ApiRow
from millstream.broker.dispatch.open_changes import CHANGED_PARTITIONS, EVERY_CHANGE
from millstream.broker.dispatch.request_targets import partitions_in
from millstream.broker.handlers.acls import create_acls, delete_acls, describe_acls
from millstream.broker.handlers.alter_configs import AlterConfigsHandler
from millstream.broker.handlers.alter_replica_log_dirs import AlterReplicaLogDirsHandler
from millstream.broker.handlers.create_partitions import CreatePartitionsHandler
from millstream.broker.handlers.create_topics import CreateTopicsHandler
from millstream.broker.handlers.delete_records import DeleteRecordsHandler
from millstream.broker.handlers.delete_topics import DeleteTopicsHandler
from millstream.broker.handlers.describe_client_quotas import describe_client_quotas
from millstream.broker.handlers.describe_cluster import DescribeClusterHandler
from millstream.broker.handlers.describe_configs import DescribeConfigsHandler
from millstream.broker.handlers.describe_log_dirs import DescribeLogDirsHandler
from millstream.broker.handlers.describe_producers import DescribeProducersHandler
from millstream.broker.handlers.describe_topic_partitions import DescribeTopicPartitionsHandler
from millstream.broker.handlers.describe_user_scram_credentials import describe_user_scram_credentials
from millstream.broker.handlers.elect_leaders import ElectLeadersHandler
from millstream.broker.handlers.incremental_alter_configs import IncrementalAlterConfigsHandler
from millstream.broker.handlers.list_config_resources import ListConfigResourcesHandler
from millstream.broker.handlers.reassignments import AlterReassignmentsHandler, list_reassignments
from millstream.groups.group_configs import GroupConfigs
from millstream.model.rights import Right
from millstream.partition.served.partitions import Partitions
from millstream.seams.clock import Clock


def admin_rows(
    partitions: Partitions,
    cluster: ClusterNode,
    clock: Clock,
    *,
    default_partitions: int,
    at_start: Iterable[ConfigEntry],
    group_configs: GroupConfigs,
) -> list[ApiRow]:
    """Return the rows. `at_start` holds the broker's own settings, which clients can read but not change."""
    reassign = AlterReassignmentsHandler(cluster)
    log_dirs = DescribeLogDirsHandler(partitions, partitions.store)
    move = AlterReplicaLogDirsHandler(cluster, partitions.store)
    return [
        *_topic_rows(partitions, cluster, clock, default_partitions),
        *_config_rows(Resources(partitions, cluster, at_start, group_configs)),
        ApiRow(29, "DescribeAcls", 1, 3, Right.CLUSTER_ADMIN, describe_acls),
        ApiRow(30, "CreateAcls", 1, 3, Right.CLUSTER_ADMIN, create_acls),
        ApiRow(31, "DeleteAcls", 1, 3, Right.CLUSTER_ADMIN, delete_acls),
        ApiRow(34, "AlterReplicaLogDirs", 1, 2, Right.CLUSTER_ADMIN, move, by_resource=True),
        ApiRow(35, "DescribeLogDirs", 1, 5, Right.CLUSTER_READ, log_dirs),
        ApiRow(43, "ElectLeaders", 0, 2, Right.CLUSTER_ADMIN, ElectLeadersHandler(cluster)),
        ApiRow(45, "AlterPartitionReassignments", 0, 1, Right.CLUSTER_ADMIN, reassign),
        ApiRow(46, "ListPartitionReassignments", 0, 0, Right.CLUSTER_READ, list_reassignments),
        ApiRow(48, "DescribeClientQuotas", 0, 1, Right.CLUSTER_READ, describe_client_quotas),
        ApiRow(50, "DescribeUserScramCredentials", 0, 0, Right.CLUSTER_ADMIN, describe_user_scram_credentials),
        ApiRow(60, "DescribeCluster", 0, 2, Right.CLUSTER_READ, DescribeClusterHandler(cluster), by_resource=True),
    ]


def _topic_rows(partitions: Partitions, cluster: ClusterNode, clock: Clock, default_partitions: int) -> list[ApiRow]:
    create = CreateTopicsHandler(partitions, cluster, default_partitions)
    delete = DeleteTopicsHandler(partitions)
    grow = CreatePartitionsHandler(partitions, cluster)
    producers = DescribeProducersHandler(partitions, clock)
    pages = DescribeTopicPartitionsHandler(cluster)
    return [
        ApiRow(19, "CreateTopics", 2, 7, Right.TOPICS_WRITE, create, waits_for=EVERY_CHANGE),
        ApiRow(20, "DeleteTopics", 1, 6, Right.TOPICS_ADMIN, delete, waits_for=EVERY_CHANGE),
        ApiRow(
            21, "DeleteRecords", 0, 2, Right.TOPICS_ADMIN, DeleteRecordsHandler(partitions),
            waits_for=CHANGED_PARTITIONS, targets=partitions_in("DeleteRecords"),
        ),
        ApiRow(37, "CreatePartitions", 0, 3, Right.TOPICS_ADMIN, grow, waits_for=EVERY_CHANGE),
        ApiRow(
            61, "DescribeProducers", 0, 0, Right.MESSAGES_READ, producers,
            waits_for=CHANGED_PARTITIONS,
            targets=partitions_in("DescribeProducers", partitions="partition_indexes", number=""),
        ),
        ApiRow(75, "DescribeTopicPartitions", 0, 0, Right.TOPICS_READ, pages, by_resource=True),
    ]  # fmt: skip


def _config_rows(resources: Resources) -> list[ApiRow]:
    alter, alter_some = AlterConfigsHandler(resources), IncrementalAlterConfigsHandler(resources)
    return [
        ApiRow(32, "DescribeConfigs", 1, 4, Right.TOPICS_READ, DescribeConfigsHandler(resources), by_resource=True),
        ApiRow(33, "AlterConfigs", 0, 2, Right.TOPICS_ADMIN, alter, by_resource=True, waits_for=EVERY_CHANGE),
        ApiRow(
            44, "IncrementalAlterConfigs", 0, 1, Right.TOPICS_ADMIN, alter_some,
            by_resource=True, waits_for=EVERY_CHANGE,
        ),
        ApiRow(74, "ListConfigResources", 0, 1, Right.CLUSTER_READ, ListConfigResourcesHandler(resources)),
    ]  # fmt: skip
