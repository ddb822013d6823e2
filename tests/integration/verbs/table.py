"""Defines the table of verbs: every operation of Millstream, and its name on each interface.

`test_verbs` calls every verb on each interface that has it, `test_table` compares the rows with the interfaces, and
`scripts/verbs_page.py` generates docs/verbs.md. Where an interface lacks a verb, the row has the reason.
"""

from dataclasses import dataclass
from typing import NamedTuple


class Missing(NamedTuple):
    """The reason why an interface lacks a verb."""

    reason: str


Place = str | tuple[str, ...] | Missing
"""The name of a verb on an interface: an API, a method, a route or a command; several if it has several forms."""

INTERFACES = ("wire", "sdk", "http", "grpc", "cli")


@dataclass(frozen=True)
class Verb:
    """One operation. `name` is the method of the adapters, `row` its row in docs/spec-coverage.md."""

    name: str
    row: str
    does: str
    wire: Place
    sdk: Place
    http: Place
    grpc: Place
    cli: Place

    def at(self, interface: str) -> Place:
        place: Place = getattr(self, interface)
        return place

    def has(self, interface: str) -> bool:
        return not isinstance(self.at(interface), Missing)

    def places(self, interface: str) -> tuple[str, ...]:
        """The verb's names on an interface; empty if it is missing."""
        place = self.at(interface)
        if isinstance(place, Missing):
            return ()
        return (place,) if isinstance(place, str) else place


_SHORT_LIVED = Missing("a command ends after its response, so its client could not stay in the group")
_SUPERVISOR = Missing("a supervisor starts brokers; use its gateway or the command line on its machine")
_IN_TOPICS = Missing("descriptions of topics include their sizes")

_TOPICS = (
    Verb(
        "list_topics", "T1", "List topics",
        wire=("DescribeTopicPartitions", "Metadata"),
        sdk=("client.list_topics", "admin.list_topics", "admin.topic_sizes", "client.metadata"),
        http="GET /v1/topics", grpc="TopicService.ListTopics", cli="topic list",
    ),
    Verb(
        "create_topic", "T2", "Create a topic",
        wire="CreateTopics", sdk="client.create_topic", http=("POST /topic", "POST /v1/topics"),
        grpc="TopicService.CreateTopic", cli="topic create",
    ),
    Verb(
        "add_partitions", "T2", "Add partitions to a topic",
        wire="CreatePartitions", sdk="admin.create_partitions", http="POST /v1/topics/{topic}/partitions",
        grpc="TopicService.AddPartitions", cli="topic alter",
    ),
    Verb(
        "describe_topic", "T3", "Describe a topic",
        wire=("Metadata", "DescribeTopicPartitions", "ListOffsets"),
        sdk=("client.describe_topic", "admin.partition_sizes"),
        http="GET /v1/topics/{topic}", grpc="TopicService.DescribeTopic", cli="topic describe",
    ),
    Verb(
        "log_directories", "T3", "Show the partitions of each data directory",
        wire="DescribeLogDirs", sdk="admin.describe_log_dirs", http=_IN_TOPICS, grpc=_IN_TOPICS, cli=_IN_TOPICS,
    ),
    Verb(
        "delete_topic", "T4", "Delete a topic",
        wire="DeleteTopics", sdk="client.delete_topic", http="DELETE /v1/topics/{topic}",
        grpc="TopicService.DeleteTopic", cli="topic delete",
    ),
    Verb(
        "delete_messages", "T4", "Delete messages before an offset",
        wire="DeleteRecords", sdk="admin.delete_records", http="DELETE /v1/topics/{topic}/messages",
        grpc="MessageService.DeleteMessages", cli="topic empty",
    ),
    Verb(
        "topic_settings", "T7", "Show a topic's settings",
        wire="DescribeConfigs", sdk="admin.describe_settings", http="GET /v1/topics/{topic}/settings",
        grpc="TopicService.GetTopicSettings", cli=("config list", "config describe"),
    ),
    Verb(
        "change_topic_settings", "T7", "Change a topic's settings",
        wire=("IncrementalAlterConfigs", "AlterConfigs"), sdk="admin.alter_settings",
        http="PATCH /v1/topics/{topic}/settings",
        grpc="TopicService.AlterTopicSettings", cli=("config set", "config unset", "topic alter"),
    ),
)  # fmt: skip

_WRITING = (
    Verb(
        "put", "W1", "Write a message",
        wire=("Produce", "Puts"),
        sdk=("client.producer", "producer.put", "producer.flush", "producer.group"),
        http=("POST /events", "POST /v1/topics/{topic}/messages"), grpc="MessageService.Put", cli="put",
    ),
    Verb(
        "put_many", "W7", "Write many messages",
        wire=("Puts", "Produce"),
        sdk=(
            "producer.put_many", "producer.room", "producer.held_bytes",
            "producer.health", "producer.max_bytes", "client.numbered_writer",
            "numbered.write", "numbered.finish", "numbered.topic",
        ),
        http="POST /events", grpc=("MessageService.PutMany", "MessageService.PutStream"), cli="put",
    ),
    Verb(
        "put_by_hash", "W2", "Write to the partition of a hash",
        wire="Puts", sdk="producer.put", http="POST /events", grpc="MessageService.Put", cli="put",
    ),
    Verb(
        "put_once", "W4", "Write once with a message id",
        wire=("Puts", "InitProducerId"), sdk="producer.put", http="POST /events", grpc="MessageService.Put", cli="put",
    ),
    Verb(
        "put_tombstone", "W1", "Write a tombstone, which deletes a key",
        wire=("Produce", "Puts"), sdk="producer.put", http="POST /events", grpc="MessageService.Put", cli="put",
    ),
)  # fmt: skip

_READING = (
    Verb(
        "get", "R1", "Read from an offset",
        wire="Fetch", sdk=("client.read", "client.read_any", "consumer.get"),
        http=("GET /events", "GET /v1/topics/{topic}/messages"), grpc="MessageService.Get", cli="get",
    ),
    Verb(
        "poll", "R2", "Read all messages and get the next offset",
        wire="Fetch",
        sdk=(
            "client.consumer", "consumer.poll", "consumer.poll_batch", "consumer.poll_arrow", "consumer.batches",
            "consumer.arrow", "consumer.arrow_table", "consumer.position", "consumer.seek", "consumer.pause",
            "consumer.resume", "consumer.lag", "consumer.start", "consumer.alive", "consumer.health",
            "consumer.assignment", "consumer.topics",
        ),
        http="GET /events", grpc="MessageService.Get", cli="get",
    ),
    Verb(
        "long_poll", "R3", "Wait for new messages (long poll)",
        wire="Fetch", sdk="client.read", http="GET /events", grpc="MessageService.Get", cli="get",
    ),
    Verb(
        "find_offsets", "R4", "Find offsets by time, or the first and last",
        wire="ListOffsets", sdk=("client.offsets", "admin.epoch_ends"), http="GET /v1/topics/{topic}/offsets",
        grpc="MessageService.FindOffsets",
        cli=Missing("`get` accepts times and start words; `topic describe` shows first and last offsets"),
    ),
    Verb(
        "subscribe", "R8", "Receive new messages (push or live tail)",
        wire=("Subscribe", "SubscriptionCommit", "Unsubscribe"),
        sdk=(
            "client.subscription", "subscription.poll", "subscription.poll_batch", "subscription.batches",
            "subscription.commit", "subscription.position",
            "subscription.health", "subscription.start", "subscription.topics",
            "subscription.group",
        ),
        http="GET /events", grpc=("MessageService.Tail", "MessageService.Subscribe"), cli="tail",
    ),
)  # fmt: skip

_GROUPS = (
    Verb(
        "read_in_group", "R6", "Consume in a group and commit",
        wire=(
            "IteratorJoin", "GetIterator", "ReadIterator", "CommitIterator", "ConsumerGroupHeartbeat",
            "WatchMember", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "FindCoordinator",
        ),
        sdk=(
            "consumer.group", "consumer.member_id", "consumer.commit", "client.iterators", "iterators.poll",
            "iterators.finish", "iterators.group", "iterators.topics", "iterators.client_id", "iterators.membership",
            "iterators.health",
        ),
        http=("GET /events", "POST /offset"), grpc=("ConsumerService.Poll", "ConsumerService.Commit"), cli="tail",
    ),
    Verb(
        "list_groups", "R6", "List groups",
        wire="ListGroups", sdk="groups.list", http="GET /v1/groups", grpc="GroupService.ListGroups", cli="group list",
    ),
    Verb(
        "describe_group", "R6", "Describe a group",
        wire=("ConsumerGroupDescribe", "DescribeGroups"), sdk="groups.describe", http="GET /v1/groups/{group}",
        grpc="GroupService.DescribeGroup", cli="group describe",
    ),
    Verb(
        "delete_group", "R6", "Delete a group",
        wire="DeleteGroups", sdk="groups.delete", http="DELETE /v1/groups/{group}", grpc="GroupService.DeleteGroup",
        cli="group delete",
    ),
    Verb(
        "group_lag", "R5", "Show a group's lag",
        wire=Missing("use OffsetFetch and ListOffsets, and subtract"), sdk="groups.lag",
        http="GET /v1/groups/{group}", grpc="GroupService.DescribeGroup", cli="group describe",
    ),
    Verb(
        "group_offsets", "R5", "Show a group's committed offsets",
        wire="OffsetFetch", sdk="groups.offsets", http="GET /v1/groups/{group}/offsets",
        grpc="GroupService.GetOffsets", cli="group describe",
    ),
    Verb(
        "commit_offsets", "R5", "Set a group's committed offsets",
        wire="OffsetCommit", sdk="groups.commit", http="PUT /v1/groups/{group}/offsets",
        grpc="GroupService.CommitOffsets", cli="group reset",
    ),
    Verb(
        "reset_offsets", "R5", "Reset a group to the beginning, the end or a time",
        wire=Missing("use ListOffsets to find the offsets, and OffsetCommit to commit them"),
        sdk=Missing("use `client.offsets` to find the offsets, and `groups.commit` to commit them"),
        http="POST /v1/groups/{group}/offsets",
        grpc="GroupService.ResetOffsets", cli="group reset",
    ),
    Verb(
        "delete_offsets", "R5", "Delete a group's committed offsets of a topic",
        wire="OffsetDelete", sdk="groups.delete_offsets", http="DELETE /v1/groups/{group}/offsets",
        grpc="GroupService.DeleteOffsets",
        cli="group forget",
    ),
    Verb(
        "group_settings", "R6", "Show a group's settings",
        wire="DescribeConfigs", sdk="admin.describe_settings", http="GET /v1/groups/{group}/settings",
        grpc="GroupService.GetGroupSettings", cli=("config list", "config describe"),
    ),
    Verb(
        "change_group_settings", "R6", "Change a group's settings",
        wire="IncrementalAlterConfigs", sdk="admin.alter_settings", http="PATCH /v1/groups/{group}/settings",
        grpc="GroupService.AlterGroupSettings", cli=("config set", "config unset"),
    ),
)  # fmt: skip

_ITERATORS = (
    Verb(
        "join_group", "R7", "Join a group of iterators",
        wire="IteratorJoin", sdk=("client.iterator_calls", "calls.join", "iterators.join"),
        http="PUT /v1/groups/{group}/consumers/{consumer}",
        grpc="IteratorService.JoinGroup", cli=_SHORT_LIVED,
    ),
    Verb(
        "heartbeat", "R7", "Send a heartbeat in a group of iterators",
        wire="IteratorHeartbeat", sdk=("calls.heartbeat", "iterators.heartbeat"),
        http="POST /v1/groups/{group}/consumers/{consumer}/heartbeat",
        grpc="IteratorService.Heartbeat",
        cli=_SHORT_LIVED,
    ),
    Verb(
        "leave_group", "R7", "Leave a group of iterators",
        wire="IteratorLeave", sdk=("calls.leave", "iterators.leave"),
        http="DELETE /v1/groups/{group}/consumers/{consumer}",
        grpc=("ConsumerService.Leave", "IteratorService.LeaveGroup"), cli=_SHORT_LIVED,
    ),
    Verb(
        "get_iterator", "R7", "Get the iterator of a partition",
        wire="GetIterator", sdk=("calls.get", "iterators.get"),
        http="POST /v1/groups/{group}/consumers/{consumer}/iterators",
        grpc="IteratorService.GetIterator",
        cli=_SHORT_LIVED,
    ),
    Verb(
        "list_iterators", "R7", "List the iterators in flight of a group",
        wire="ListIterators", sdk=("calls.list", "iterators.list"),
        http=("GET /v1/groups/{group}/iterators", "GET /v1/groups/{group}/consumers/{consumer}/iterators"),
        grpc="IteratorService.ListIterators",
        cli=Missing("`sql` shows committed offsets; iterators are in flight only for seconds"),
    ),
    Verb(
        "read_iterator", "R7", "Read messages with an iterator",
        wire="ReadIterator", sdk=("calls.read", "iterators.read"),
        http="POST /v1/iterators/read",
        grpc="IteratorService.ReadIterator",
        cli=_SHORT_LIVED,
    ),
    Verb(
        "deliver_iterator", "R7", "Report what was delivered of an iterator",
        wire="DeliverIterator", sdk="calls.deliver",
        http="POST /v1/groups/{group}/consumers/{consumer}/deliver",
        grpc="IteratorService.DeliverIterator", cli=_SHORT_LIVED,
    ),
    Verb(
        "commit_iterator", "R7", "Commit an iterator",
        wire="CommitIterator", sdk=("calls.commit", "iterators.commit"),
        http="POST /v1/groups/{group}/consumers/{consumer}/commit",
        grpc="IteratorService.CommitIterator", cli=_SHORT_LIVED,
    ),
)  # fmt: skip

_CLUSTER = (
    Verb(
        "create_cluster", "C1", "Create a cluster",
        wire=_SUPERVISOR, sdk=_SUPERVISOR, http="POST /cluster", grpc="ClusterService.CreateCluster",
        cli="cluster create",
    ),
    Verb(
        "list_clusters", "C1", "List clusters",
        wire=_SUPERVISOR, sdk=_SUPERVISOR, http="GET /v1/clusters", grpc="ClusterService.ListClusters",
        cli="cluster list",
    ),
    Verb(
        "stop_cluster", "C1", "Stop the brokers of a cluster",
        wire=_SUPERVISOR, sdk=_SUPERVISOR, http="POST /v1/clusters/{name}/stop", grpc="ClusterService.StopCluster",
        cli="cluster stop",
    ),
    Verb(
        "start_cluster", "C1", "Start the brokers of a stopped cluster",
        wire=_SUPERVISOR, sdk=_SUPERVISOR, http="POST /v1/clusters/{name}/start", grpc="ClusterService.StartCluster",
        cli="cluster start",
    ),
    Verb(
        "delete_cluster", "C1", "Delete a cluster and all its data",
        wire=_SUPERVISOR, sdk=_SUPERVISOR, http="DELETE /v1/clusters/{name}", grpc="ClusterService.DeleteCluster",
        cli="cluster delete",
    ),
    Verb(
        "service_map", "C4", "Show the addresses of services and the partition leaders",
        wire="ServiceMap", sdk="client.service_map", http="GET /v1/service-map", grpc="ClusterService.GetServiceMap",
        cli="cluster services",
    ),
    Verb(
        "backup_map", "C4", "Show the followers of partitions",
        wire="BackupMap", sdk="client.backup_map", http="GET /v1/backup-map", grpc="ClusterService.GetBackupMap",
        cli="cluster backups",
    ),
    Verb(
        "query", "C5", "Query the catalog with SQL",
        wire="Query", sdk="admin.query", http="POST /v1/query", grpc="ClusterService.RunQuery", cli="sql",
    ),
    Verb(
        "info", "C7", "Show versions and clock drift",
        wire="Info", sdk=("client.info", "client.clock_drift"), http="GET /v1/info", grpc="ClusterService.GetInfo",
        cli="info",
    ),
    Verb(
        "describe_cluster", "P5", "Describe a cluster",
        wire=("DescribeCluster", "Metadata"), sdk="admin.describe_cluster", http="GET /v1/cluster",
        grpc="ClusterService.GetInfo", cli="cluster info",
    ),
    Verb(
        "broker_settings", "P5", "Show a broker's settings",
        wire="DescribeConfigs", sdk="admin.describe_settings", http="GET /v1/brokers/{broker}/settings",
        grpc="ClusterService.GetBrokerSettings", cli=("config list", "config describe"),
    ),
    Verb(
        "change_broker_settings", "P5", "Change a broker's settings",
        wire="IncrementalAlterConfigs", sdk="admin.alter_settings", http="PATCH /v1/brokers/{broker}/settings",
        grpc="ClusterService.AlterBrokerSettings", cli=("config set", "config unset"),
    ),
    Verb(
        "dump", "P6", "Print log files as text",
        wire=Missing("Fetch returns the same messages, in batches as stored"),
        sdk=Missing("`consumer` returns the same messages"),
        http=Missing("`GET /events` returns the same messages"),
        grpc=Missing("`Get` returns the same messages"),
        cli="dump",
    ),
)  # fmt: skip

VERBS = (*_TOPICS, *_WRITING, *_READING, *_GROUPS, *_ITERATORS, *_CLUSTER)
