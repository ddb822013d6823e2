"""DescribeLogDirs: the data directories, the room on their volumes, and the sizes of the logs in them."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from millstream.broker.dispatch.capabilities import TopicLookup
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.response_rows import Group, encode_groups
from millstream.model.errors import ErrorCode
from millstream.model.names import PartitionKey
from millstream.partition.partition import Partition
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


class DescribeLogDirsHandler:
    def __init__(self, topics: TopicLookup, directories: DataDirectories) -> None:
        self._topics = topics
        self._directories = directories

    def __call__(self, request: BrokerRequest) -> Result:
        return Work(self._answer(request.version, read_request(API, request.version, request.frame, request.body)))

    async def _answer(self, version: int, fields: Fields) -> bytes:
        wanted = self._wanted(fields["topics"])
        rows = [await self._directory(version, path, wanted) for path in self._directories.directories]
        return write_response(API, version, {"results": rows})

    def _wanted(self, topics: Sequence[Fields] | None) -> dict[str, frozenset[int] | None]:
        """The partitions that are asked for, by topic; None: all of them. Topics that there are not are left out."""
        if topics is None:
            return dict.fromkeys((topic.name for topic in self._topics.topics()), None)
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
            here = [
                partition
                for partition in self._topics.of(name)
                if (numbers is None or partition.number in numbers)
                and self._directories.directory_of(partition.key) == path
            ]
            if here:
                yield {"name": name}, map(_row, here)


def _row(partition: Partition) -> dict[str, Any]:
    return {"partition_index": partition.number, "partition_size": partition.log.size_bytes}
