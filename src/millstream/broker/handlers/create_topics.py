"""CreateTopics: creates topics, each separately, so that an invalid topic does not prevent the others."""

from collections import Counter
from typing import Any

from millstream.broker.config_entries import ConfigEntry, topic_settings
from millstream.broker.dispatch.capabilities import ClusterNode, TopicCreation, bad_assignment
from millstream.broker.dispatch.open_changes import CHANGED_TOPICS
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.listed_topics import check_listed
from millstream.broker.response_rows import Group, encode_groups
from millstream.model.authorization import Access
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.wire.messages import read_request, write_response

API = "CreateTopics"

_SETTINGS_FROM = 5


class CreateTopicsHandler:
    """The response lists all settings of a created topic: its own, the broker's and the defaults."""

    def __init__(self, topics: TopicCreation, cluster: ClusterNode, default_partitions: int) -> None:
        self._topics = topics
        self._cluster = cluster
        self._default_partitions = default_partitions

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        return Work(self._answer(request.version, fields, request.access), change=CHANGED_TOPICS)

    async def _answer(self, version: int, fields: dict[str, Any], access: Access) -> bytes:
        times = Counter(topic["name"] for topic in fields["topics"])
        rows: list[Group] = []
        for name, wanted in {topic["name"]: topic for topic in fields["topics"]}.items():
            try:
                check_listed(name, times, access)
                rows.append(await self._create(wanted, fields["validate_only"]))
            except MillstreamError as error:
                rows.append(({"name": name, "error_code": error.code.number, "error_message": error.detail}, ()))
        if version < _SETTINGS_FROM:
            return write_response(API, version, {"topics": [row for row, _ in rows]})
        return write_response(API, version, {"topics": await encode_groups(API, version, ("topics",), "configs", rows)})

    async def _create(self, wanted: dict[str, Any], validate_only: bool) -> Group:
        partitions, replication_factor = self._layout(wanted)
        settings = _settings(wanted)
        topic = await self._topics.create(
            wanted["name"],
            partitions,
            settings,
            replication_factor=replication_factor,
            validate_only=validate_only,
        )
        row = {
            "name": topic.name,
            "topic_id": topic.topic_id,
            "error_message": None,
            "num_partitions": topic.partitions,
            "replication_factor": 1,
        }
        return row, map(_setting, topic_settings(topic.settings, self._topics.defaults))

    def _layout(self, wanted: dict[str, Any]) -> tuple[int, int]:
        """Return the partition count and the replication factor, from the request's numbers or its assignments."""
        assignments = wanted["assignments"]
        partitions, replication_factor = wanted["num_partitions"], wanted["replication_factor"]
        if not assignments:
            return (self._default_partitions if partitions == -1 else partitions), replication_factor
        if partitions != -1 or replication_factor != -1:
            raise MillstreamError(
                ErrorCode.INVALID_REQUEST,
                "num_partitions and replication_factor must be -1 if the request assigns replicas",
            )
        numbers = sorted(each["partition_index"] for each in assignments)
        if numbers != list(range(len(assignments))):
            raise MillstreamError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "assignments must name each of the partitions 0, 1, 2 and so on once",
            )
        for each in assignments:
            if list(each["broker_ids"]) != [self._cluster.node_id]:
                raise bad_assignment(self._cluster.image, f"partition {each['partition_index']}", each["broker_ids"])
        return len(assignments), 1


def _setting(setting: ConfigEntry) -> dict[str, Any]:
    return {"name": setting.name, "value": setting.value, "config_source": setting.source}


def _settings(wanted: dict[str, Any]) -> dict[str, str | None]:
    settings: dict[str, str | None] = {}
    for row in wanted["configs"]:
        if row["name"] in settings:
            raise MillstreamError(ErrorCode.INVALID_CONFIG, f"the request sets {row['name'][:100]} twice")
        settings[row["name"]] = row["value"]
    return settings
