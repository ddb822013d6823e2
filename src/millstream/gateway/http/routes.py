"""Lists all operations of the web API, in the order of the documentation."""

from collections.abc import Sequence
from dataclasses import replace

from millstream.gateway.http.docs import Documentation
from millstream.gateway.http.operation_table import Example, WebOperation
from millstream.gateway.http.resources import (
    cluster_create,
    cluster_info,
    group_offsets,
    groups,
    iterators,
    resource_settings,
    topics,
)
from millstream.gateway.http.resources.cluster_create import POST_CLUSTER
from millstream.gateway.http.resources.common_parameters import (
    BrokerParameters,
    ClusterParameters,
    EmptyBody,
    Name,
    PageParameters,
    TopicParameters,
    TopicsParameters,
)
from millstream.gateway.http.resources.consumers import POST_OFFSET
from millstream.gateway.http.resources.get_events import GET_EVENTS
from millstream.gateway.http.resources.post_events import POST_EVENTS
from millstream.model.errors import ErrorCode
from millstream.model.rights import Right

_TOPIC_ERRORS = (ErrorCode.UNKNOWN_CLUSTER, ErrorCode.INVALID_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_CLUSTER_ERRORS = (ErrorCode.UNKNOWN_CLUSTER, ErrorCode.UNSUPPORTED_VERSION)

POST_TOPIC = WebOperation(
    "POST",
    "/topic",
    "postTopic",
    "Create a topic",
    Right.TOPICS_WRITE,
    topics.create_topic,
    parameters=EmptyBody,
    body=topics.NewTopic,
    answer=topics.CreatedTopic,
    status=201,
    concerns="topic",
    group="Topics",
    errors=(
        ErrorCode.UNKNOWN_CLUSTER,
        ErrorCode.INVALID_TOPIC,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_CONFIG,
    ),
    examples=(Example("A topic", "/topic", {"name": "orders", "partitions": 3}),),
    bounds={
        "partitions": ErrorCode.INVALID_PARTITIONS,
        "replication_factor": ErrorCode.INVALID_REPLICATION_FACTOR,
    },
)

_FIRST = (POST_TOPIC, POST_EVENTS, GET_EVENTS)

_TOPICS = (
    WebOperation(
        "GET",
        "/v1/topics",
        "listTopics",
        "List topics",
        Right.TOPICS_READ,
        topics.list_topics,
        parameters=PageParameters,
        answer=topics.ListedTopics,
        group="Topics",
        errors=(ErrorCode.UNKNOWN_CLUSTER,),
        examples=(Example("The first page", "/v1/topics?limit=10"),),
    ),
    replace(
        POST_TOPIC,
        path="/v1/topics",
        name="createTopic",
        examples=(
            Example("With settings", "/v1/topics", {"name": "invoices", "settings": {"retention.ms": "86400000"}}),
        ),
    ),
    WebOperation(
        "GET",
        "/v1/topics/{topic}",
        "describeTopic",
        "Describe a topic",
        Right.TOPICS_READ,
        topics.describe_topic,
        parameters=TopicParameters,
        answer=topics.TopicBody,
        concerns="topic",
        group="Topics",
        errors=_TOPIC_ERRORS,
        examples=(Example("A topic", "/v1/topics/orders"),),
    ),
    WebOperation(
        "POST",
        "/v1/topics/{topic}/partitions",
        "addPartitions",
        "Add partitions to a topic",
        Right.TOPICS_ADMIN,
        topics.add_partitions,
        parameters=TopicParameters,
        body=topics.MorePartitions,
        answer=topics.TopicBody,
        concerns="topic",
        group="Topics",
        errors=(*_TOPIC_ERRORS, ErrorCode.INVALID_PARTITIONS),
        examples=(Example("Four in total", "/v1/topics/orders/partitions", {"total": 4}),),
        bounds={"total": ErrorCode.INVALID_PARTITIONS},
    ),
    WebOperation(
        "GET",
        "/v1/topics/{topic}/settings",
        "getTopicSettings",
        "Show a topic's settings",
        Right.TOPICS_READ,
        resource_settings.get_topic_settings,
        parameters=TopicParameters,
        answer=resource_settings.SettingsView,
        concerns="topic",
        group="Topics",
        errors=_TOPIC_ERRORS,
        examples=(Example("A topic's", "/v1/topics/orders/settings"),),
    ),
    WebOperation(
        "PATCH",
        "/v1/topics/{topic}/settings",
        "changeTopicSettings",
        "Change a topic's settings",
        Right.TOPICS_ADMIN,
        resource_settings.change_topic_settings,
        parameters=TopicParameters,
        body=resource_settings.ChangedSettings,
        answer=resource_settings.SettingsView,
        concerns="topic",
        group="Topics",
        errors=(*_TOPIC_ERRORS, ErrorCode.INVALID_CONFIG),
        examples=(
            Example("Keep a week", "/v1/topics/orders/settings", {"set": {"retention.ms": "604800000"}, "unset": []}),
        ),
    ),
    WebOperation(
        "GET",
        "/v1/topics/{topic}/offsets",
        "getOffsets",
        "Find offsets by time, or the first and last",
        Right.MESSAGES_READ,
        topics.get_offsets,
        parameters=topics.OffsetQuery,
        answer=topics.TopicOffsets,
        concerns="topic",
        group="Topics",
        errors=_TOPIC_ERRORS,
        examples=(Example("An hour ago", "/v1/topics/orders/offsets?time=1h"),),
    ),
    replace(
        GET_EVENTS,
        path="/v1/topics/{topic}/messages",
        name="getMessages",
        examples=(Example("From the beginning", "/v1/topics/orders/messages?offset=beginning&wait=0"),),
    ),
    replace(
        POST_EVENTS,
        path="/v1/topics/{topic}/messages",
        name="postMessages",
        examples=(Example("An event", "/v1/topics/orders/messages", {"value": "hello"}),),
    ),
    WebOperation(
        "DELETE",
        "/v1/topics/{topic}/messages",
        "deleteMessages",
        "Delete messages before an offset",
        Right.TOPICS_ADMIN,
        topics.delete_messages,
        parameters=TopicParameters,
        body=topics.DeleteRecordsBody,
        answer=topics.LogStartOffsets,
        concerns="topic",
        group="Topics",
        errors=(*_TOPIC_ERRORS, ErrorCode.OFFSET_OUT_OF_RANGE),
        examples=(Example("All of a partition", "/v1/topics/orders/messages", {"before": {"0": -1}}),),
    ),
    WebOperation(
        "DELETE",
        "/v1/topics/{topic}",
        "deleteTopic",
        "Delete a topic and its messages",
        Right.TOPICS_ADMIN,
        topics.delete_topic,
        parameters=TopicParameters,
        status=204,
        concerns="topic",
        group="Topics",
        errors=_TOPIC_ERRORS,
        examples=(Example("A topic", "/v1/topics/invoices"),),
    ),
)

_CLUSTER = (
    WebOperation(
        "GET",
        "/v1/info",
        "getInfo",
        "Show versions and clock drift",
        Right.CLUSTER_READ,
        cluster_info.get_info,
        parameters=ClusterParameters,
        answer=cluster_info.Info,
        group="Cluster",
        errors=_CLUSTER_ERRORS,
        examples=(Example("All", "/v1/info"),),
    ),
    WebOperation(
        "GET",
        "/v1/cluster",
        "describeCluster",
        "Describe a cluster",
        Right.CLUSTER_READ,
        cluster_info.describe_cluster,
        parameters=ClusterParameters,
        answer=cluster_info.ClusterInfo,
        group="Cluster",
        errors=_CLUSTER_ERRORS,
        examples=(Example("The default cluster", "/v1/cluster"),),
    ),
    WebOperation(
        "GET",
        "/v1/service-map",
        "getServiceMap",
        "Show the addresses of services and the partition leaders",
        Right.CLUSTER_READ,
        cluster_info.get_service_map,
        parameters=TopicsParameters,
        answer=cluster_info.ServiceMapBody,
        group="Cluster",
        errors=(*_CLUSTER_ERRORS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        examples=(Example("For a topic", "/v1/service-map?topics=orders"),),
    ),
    WebOperation(
        "GET",
        "/v1/backup-map",
        "getBackupMap",
        "Show the followers of partitions",
        Right.CLUSTER_READ,
        cluster_info.get_backup_map,
        parameters=TopicsParameters,
        answer=cluster_info.BackupMapBody,
        group="Cluster",
        errors=(*_CLUSTER_ERRORS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        examples=(Example("For a topic", "/v1/backup-map?topics=orders"),),
    ),
    WebOperation(
        "GET",
        "/v1/brokers/{broker}/settings",
        "getBrokerSettings",
        "Show a broker's settings",
        Right.CLUSTER_READ,
        resource_settings.get_broker_settings,
        parameters=BrokerParameters,
        answer=resource_settings.SettingsView,
        group="Cluster",
        errors=(*_CLUSTER_ERRORS, ErrorCode.RESOURCE_NOT_FOUND),
        examples=(Example("Broker 1", "/v1/brokers/1/settings"),),
    ),
    WebOperation(
        "PATCH",
        "/v1/brokers/{broker}/settings",
        "changeBrokerSettings",
        "Change a broker's settings",
        Right.CLUSTER_ADMIN,
        resource_settings.change_broker_settings,
        parameters=BrokerParameters,
        body=resource_settings.ChangedSettings,
        answer=resource_settings.SettingsView,
        group="Cluster",
        errors=(*_CLUSTER_ERRORS, ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.INVALID_CONFIG),
        examples=(Example("Nothing", "/v1/brokers/1/settings", {"unset": []}),),
    ),
    WebOperation(
        "POST",
        "/v1/query",
        "runQuery",
        "Query the catalog with SQL",
        Right.CLUSTER_READ,
        cluster_info.run_query,
        parameters=ClusterParameters,
        body=cluster_info.Query,
        answer=cluster_info.QueryRows,
        group="Cluster",
        errors=_CLUSTER_ERRORS,
        examples=(Example("The topics", "/v1/query", {"sql": "SELECT name FROM topics"}),),
    ),
)

OPERATIONS: Sequence[WebOperation] = (
    *_FIRST,
    POST_OFFSET,
    POST_CLUSTER,
    *_TOPICS,
    *group_offsets.OPERATIONS,
    *groups.OPERATIONS,
    *iterators.OPERATIONS,
    *_CLUSTER,
    *cluster_create.OPERATIONS,
)


def documentation_of(pages: Documentation) -> Sequence[WebOperation]:
    """Return the pages of the documentation. The OpenAPI document does not list them."""
    return [
        WebOperation("GET", path, name, name, Right.NOTHING, handler, parameters=parameters)
        for path, name, handler, parameters in (
            ("/", "Redirect to the documentation", pages.redirect, EmptyBody),
            ("/docs", "Documentation page", pages.page, EmptyBody),
            ("/docs/errors", "Error codes", pages.errors, EmptyBody),
            ("/docs/assets/{name}", "Static file of the documentation", pages.asset, Name),
            ("/openapi.json", "OpenAPI document", pages.document, EmptyBody),
        )
    ]
