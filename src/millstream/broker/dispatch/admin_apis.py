"""The rows of the dispatch table that administer topics, settings and the broker."""

from collections.abc import Iterable

from millstream.broker.dispatch.capabilities import Identity
from millstream.broker.dispatch.table import Right, Row
from millstream.broker.handlers.acls import create_acls, delete_acls, describe_acls
from millstream.broker.handlers.alter_configs import AlterConfigsHandler
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
from millstream.broker.resources import Resources
from millstream.broker.shown_settings import ShownSetting
from millstream.groups.settings import GroupSettings
from millstream.partition.served.partitions import Partitions
from millstream.seams.clock import Clock


def admin_rows(
    partitions: Partitions,
    identity: Identity,
    clock: Clock,
    *,
    default_partitions: int,
    at_start: Iterable[ShownSetting],
    group_settings: GroupSettings,
) -> list[Row]:
    """`at_start` is what the broker was told besides the defaults of topics: it is shown, and cannot be changed."""
    resources = Resources(partitions, identity, at_start, group_settings)
    create = CreateTopicsHandler(partitions, identity, default_partitions)
    grow = CreatePartitionsHandler(partitions, identity)
    producers = DescribeProducersHandler(partitions, clock)
    log_dirs = DescribeLogDirsHandler(partitions, partitions.store)
    reassign = AlterReassignmentsHandler(partitions, identity)
    pages = DescribeTopicPartitionsHandler(partitions, identity)
    return [
        Row(19, "CreateTopics", 2, 7, Right.CREATE, create),
        Row(20, "DeleteTopics", 1, 6, Right.ADMIN, DeleteTopicsHandler(partitions)),
        Row(21, "DeleteRecords", 0, 2, Right.ADMIN, DeleteRecordsHandler(partitions)),
        Row(29, "DescribeAcls", 1, 3, Right.ADMIN, describe_acls),
        Row(30, "CreateAcls", 1, 3, Right.ADMIN, create_acls),
        Row(31, "DeleteAcls", 1, 3, Right.ADMIN, delete_acls),
        Row(32, "DescribeConfigs", 1, 4, Right.DESCRIBE, DescribeConfigsHandler(resources)),
        Row(33, "AlterConfigs", 0, 2, Right.ADMIN, AlterConfigsHandler(resources)),
        Row(35, "DescribeLogDirs", 1, 5, Right.DESCRIBE, log_dirs),
        Row(37, "CreatePartitions", 0, 3, Right.ADMIN, grow),
        Row(43, "ElectLeaders", 0, 2, Right.ADMIN, ElectLeadersHandler(partitions)),
        Row(44, "IncrementalAlterConfigs", 0, 1, Right.ADMIN, IncrementalAlterConfigsHandler(resources)),
        Row(45, "AlterPartitionReassignments", 0, 1, Right.ADMIN, reassign),
        Row(46, "ListPartitionReassignments", 0, 0, Right.DESCRIBE, list_reassignments),
        Row(48, "DescribeClientQuotas", 0, 1, Right.DESCRIBE, describe_client_quotas),
        Row(50, "DescribeUserScramCredentials", 0, 0, Right.ADMIN, describe_user_scram_credentials),
        Row(60, "DescribeCluster", 0, 2, Right.NONE, DescribeClusterHandler(identity)),
        Row(61, "DescribeProducers", 0, 0, Right.READ, producers),
        Row(74, "ListConfigResources", 0, 1, Right.DESCRIBE, ListConfigResourcesHandler(resources)),
        Row(75, "DescribeTopicPartitions", 0, 0, Right.DESCRIBE, pages),
    ]
