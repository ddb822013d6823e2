"""Requests the service map (services and partition leaders) and the backup map (followers of each partition)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.model.services import NO_PORT as NO_PORT
from millstream.model.services import Service
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.responses import refusal
from millstream.wire.client_connection import Api, ApiRequest
from millstream.wire.messages import read_response, write_request

SERVICE_MAP = Api(1004, "ServiceMap", 0, 0)
BACKUP_MAP = Api(1005, "BackupMap", 0, 0)

T = TypeVar("T")


class Leader(NamedTuple):
    """The broker that leads a partition (-1: none) and the leader epoch."""

    node_id: int
    epoch: int


class ServiceMap(NamedTuple):
    """The addresses of all services of a cluster, and the leaders of partitions."""

    cluster_id: str
    controller_id: int
    services: tuple[Service, ...]
    leaders: Mapping[TopicPartition, Leader]

    def of_kind(self, kind: str) -> tuple[Service, ...]:
        """Return the services of one kind: kafka, operator, http, grpc, console, catalog, spark-master or pipeline."""
        return tuple(service for service in self.services if service.kind == kind)


class Follower(NamedTuple):
    """A broker that has a copy of a partition. `end_offset` is its flushed end, -1 while that is unknown."""

    node_id: int
    in_sync: bool
    end_offset: int


class Backup(NamedTuple):
    """The leader of a partition, its end offset and its followers. Without followers there is no backup."""

    leader_id: int
    end_offset: int
    high_watermark: int
    followers: tuple[Follower, ...]


class BackupMap(NamedTuple):
    """The backups of all partitions. `note` is a remark on all of them, for example that there are no backups."""

    note: str
    partitions: Mapping[TopicPartition, Backup]


async def service_map(caller: RetryingCaller, topics: Sequence[str] | None, deadline: Deadline) -> ServiceMap:
    """Request services and leaders for these topics, or all; UNKNOWN_TOPIC_OR_PARTITION if one does not exist."""
    pages = await _pages(caller, SERVICE_MAP, topics, deadline)
    first = pages[0]
    services = tuple(Service(**{name: row[name] for name in Service._fields}) for row in first["services"])
    leaders = _partitions(pages, lambda row: Leader(row["leader_id"], row["leader_epoch"]))
    return ServiceMap(first["cluster_id"], first["controller_id"], services, leaders)


async def backup_map(caller: RetryingCaller, topics: Sequence[str] | None, deadline: Deadline) -> BackupMap:
    """Request the followers for these topics, or all; UNKNOWN_TOPIC_OR_PARTITION if one does not exist."""
    pages = await _pages(caller, BACKUP_MAP, topics, deadline)
    return BackupMap(pages[0]["note"] or "", _partitions(pages, _backup))


def _backup(row: Mapping[str, Any]) -> Backup:
    followers = tuple(Follower(each["node_id"], each["in_sync"], each["end_offset"]) for each in row["followers"])
    return Backup(row["leader_id"], row["end_offset"], row["high_watermark"], followers)


async def _pages(
    caller: RetryingCaller, api: Api, topics: Sequence[str] | None, deadline: Deadline
) -> list[dict[str, Any]]:
    pages: list[dict[str, Any]] = []
    cursor = None
    while not pages or cursor is not None:
        page = await caller.anyone(_request(api, topics, cursor), deadline)
        pages.append(page)
        cursor = page["next_cursor"]
    return pages


def _request(api: Api, topics: Sequence[str] | None, cursor: Mapping[str, Any] | None) -> ApiRequest[dict[str, Any]]:
    fields = {"topics": None if topics is None else list(topics), "cursor": cursor}

    def decode(version: int, frame: memoryview, start: int) -> dict[str, Any] | MillstreamError:
        answer = read_response(api.name, version, frame, start)
        if answer["error_code"]:
            return refusal(answer["error_code"], api.name, answer["error_message"])
        for topic in answer["topics"]:
            if topic["error_code"] and (topics is not None or topic["error_code"] != _VANISHED):
                return refusal(topic["error_code"], f"topic {topic['name']!r}")
        return answer

    return ApiRequest(api, lambda version: [write_request(api.name, version, fields)], decode)


def _partitions(pages: Sequence[Mapping[str, Any]], row: Callable[[Mapping[str, Any]], T]) -> dict[TopicPartition, T]:
    return {
        TopicPartition(topic["name"], each["partition"]): row(each)
        for page in pages
        for topic in page["topics"]
        for each in topic["partitions"]
    }


_VANISHED = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number
"""Ignored in a listing of all topics: a topic may be deleted between two pages."""
