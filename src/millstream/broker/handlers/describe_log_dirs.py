"""DescribeLogDirs: lists the data directories, the space on their volumes and the sizes of their logs."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.response_rows import Group, encode_groups
from millstream.catalog.cluster_image import ClusterImage
from millstream.model.errors import ErrorCode
from millstream.model.ids import TopicId
from millstream.model.names import PartitionKey
from millstream.partition.replica import Replica
from millstream.seams.disk import Space
from millstream.wire.messages import read_request, write_response
from millstream.wire.schema_readers import Fields

API = "DescribeLogDirs"
_UNKNOWN_SPACE = Space(-1, -1)


class DataDirectories(Protocol):
    @property
    def directories(self) -> Sequence[str]: ...

    def directory_of(self, key: PartitionKey) -> str | None: ...

    async def space(self, directory: str) -> Space: ...


class LocalPartitions(Protocol):
    """Finds the replicas on this broker."""

    @property
    def image(self) -> ClusterImage: ...

    def replicas_of(self, topic_id: TopicId, numbers: Iterable[int]) -> Sequence[Replica]: ...


class DescribeLogDirsHandler:
    def __init__(self, partitions: LocalPartitions, directories: DataDirectories) -> None:
        self._partitions = partitions
        self._directories = directories

    def __call__(self, request: BrokerRequest) -> Result:
        return Work(self._answer(request.version, read_request(API, request.version, request.frame, request.body)))

    async def _answer(self, version: int, fields: Fields) -> bytes:
        wanted = self._wanted(fields["topics"])
        rows = [await self._directory(version, path, wanted) for path in self._directories.directories]
        return write_response(API, version, {"results": rows})

    def _wanted(self, topics: Sequence[Fields] | None) -> dict[str, frozenset[int] | None]:
        """Return the requested partitions by topic. None stands for all partitions of a topic."""
        if topics is None:
            return dict.fromkeys(self._partitions.image.names, None)
        return {row["topic"]: frozenset(row["partitions"]) for row in topics}

    async def _directory(self, version: int, path: str, wanted: dict[str, frozenset[int] | None]) -> dict[str, Any]:
        row: dict[str, Any] = {"log_dir": path}
        try:
            space = await self._directories.space(path)
        except OSError:
            space = _UNKNOWN_SPACE
            row["error_code"] = ErrorCode.KAFKA_STORAGE_ERROR.number
        groups = self._groups(path, wanted)
        row["topics"] = await encode_groups(API, version, ("results", "topics"), "partitions", groups)
        return row | {"total_bytes": space.total_bytes, "usable_bytes": space.free_bytes}

    def _groups(self, path: str, wanted: dict[str, frozenset[int] | None]) -> Iterator[Group]:
        for name, numbers in wanted.items():
            topic = self._partitions.image.topic(name)
            if topic is None:
                continue
            replicas = self._partitions.replicas_of(
                topic.topic_id, range(topic.partitions) if numbers is None else sorted(numbers)
            )
            here = [replica for replica in replicas if self._directories.directory_of(replica.key) == path]
            if here:
                yield {"name": name}, map(_row, here)


def _row(replica: Replica) -> dict[str, Any]:
    return {"partition_index": replica.key.partition, "partition_size": replica.log.size_bytes}
