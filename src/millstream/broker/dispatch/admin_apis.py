"""The rows of the dispatch table that administer topics, settings and the broker."""

from collections.abc import Iterable

from millstream.broker.config_entries import ConfigEntry
from millstream.broker.config_resources import Resources
from millstream.broker.dispatch.capabilities import BrokerIdentity
from millstream.broker.dispatch.dispatch_table import ApiRight, ApiRow
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
from millstream.groups.settings import GroupSettings
from millstream.partition.served.partitions import Partitions
from millstream.seams.clock import Clock


def admin_rows(
    partitions: Partitions,
    identity: BrokerIdentity,
    clock: Clock,
    *,
    default_partitions: int,
    at_start: Iterable[ConfigEntry],
    group_settings: GroupSettings,
) -> list[ApiRow]:
    """`at_start` is what the broker was told besides the defaults of topics: it is shown, and cannot be changed."""
    resources = Resources(partitions, identity, at_start, group_settings)
    create = CreateTopicsHandler(partitions, identity, default_partitions)
    grow = CreatePartitionsHandler(partitions, identity)
    producers = DescribeProducersHandler(partitions, clock)
    log_dirs = DescribeLogDirsHandler(partitions, partitions.store)
    reassign = AlterReassignmentsHandler(partitions, identity)
    pages = DescribeTopicPartitionsHandler(partitions, identity)
    return [
        ApiRow(19, "CreateTopics", 2, 7, ApiRight.CREATE, create),
        ApiRow(20, "DeleteTopics", 1, 6, ApiRight.ADMIN, DeleteTopicsHandler(partitions)),
        ApiRow(21, "DeleteRecords", 0, 2, ApiRight.ADMIN, DeleteRecordsHandler(partitions)),
        ApiRow(29, "DescribeAcls", 1, 3, ApiRight.ADMIN, describe_acls),
        ApiRow(30, "CreateAcls", 1, 3, ApiRight.ADMIN, create_acls),
        ApiRow(31, "DeleteAcls", 1, 3, ApiRight.ADMIN, delete_acls),
        ApiRow(32, "DescribeConfigs", 1, 4, ApiRight.DESCRIBE, DescribeConfigsHandler(resources)),
        ApiRow(33, "AlterConfigs", 0, 2, ApiRight.ADMIN, AlterConfigsHandler(resources)),
        ApiRow(35, "DescribeLogDirs", 1, 5, ApiRight.DESCRIBE, log_dirs),
        ApiRow(37, "CreatePartitions", 0, 3, ApiRight.ADMIN, grow),
        ApiRow(43, "ElectLeaders", 0, 2, ApiRight.ADMIN, ElectLeadersHandler(partitions)),
        ApiRow(44, "IncrementalAlterConfigs", 0, 1, ApiRight.ADMIN, IncrementalAlterConfigsHandler(resources)),
        ApiRow(45, "AlterPartitionReassignments", 0, 1, ApiRight.ADMIN, reassign),
        ApiRow(46, "ListPartitionReassignments", 0, 0, ApiRight.DESCRIBE, list_reassignments),
        ApiRow(48, "DescribeClientQuotas", 0, 1, ApiRight.DESCRIBE, describe_client_quotas),
        ApiRow(50, "DescribeUserScramCredentials", 0, 0, ApiRight.ADMIN, describe_user_scram_credentials),
        ApiRow(60, "DescribeCluster", 0, 2, ApiRight.NONE, DescribeClusterHandler(identity)),
        ApiRow(61, "DescribeProducers", 0, 0, ApiRight.READ, producers),
        ApiRow(74, "ListConfigResources", 0, 1, ApiRight.DESCRIBE, ListConfigResourcesHandler(resources)),
        ApiRow(75, "DescribeTopicPartitions", 0, 0, ApiRight.DESCRIBE, pages),
    ]
