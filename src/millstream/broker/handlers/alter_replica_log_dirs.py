"""AlterReplicaLogDirs: accepts only the data directory that a replica is in, since replicas are not moved."""

from collections.abc import Iterator

from millstream.broker.dispatch.capabilities import ImageSource
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.handlers.describe_log_dirs import DataDirectories
from millstream.broker.response_rows import Group, encode_groups
from millstream.model.authorization import Access
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.rights import Right
from millstream.wire.messages import read_request, write_response
from millstream.wire.schema_readers import Fields

API = "AlterReplicaLogDirs"


class AlterReplicaLogDirsHandler:
    def __init__(self, cluster: ImageSource, directories: DataDirectories) -> None:
        self._cluster = cluster
        self._directories = directories

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        return Work(self._answer(request.version, fields, request.access))

    async def _answer(self, version: int, fields: Fields, access: Access) -> bytes:
        wanted: dict[str, dict[int, str]] = {}
        for directory in fields["dirs"]:
            for topic in directory["topics"]:
                paths = dict.fromkeys(topic["partitions"], directory["path"])
                wanted.setdefault(topic["name"], {}).update(paths)
        rows = await encode_groups(API, version, ("results",), "partitions", self._groups(wanted, access))
        return write_response(API, version, {"results": rows})

    def _groups(self, wanted: dict[str, dict[int, str]], access: Access) -> Iterator[Group]:
        for name, paths in wanted.items():
            yield {"topic_name": name}, (self._row(name, number, path, access) for number, path in paths.items())

    def _row(self, topic: str, number: int, path: str, access: Access) -> Fields:
        try:
            self._check(topic, number, path, access)
        except MillstreamError as error:
            return {"partition_index": number, "error_code": error.code.number}
        return {"partition_index": number}

    def _check(self, topic: str, number: int, path: str, access: Access) -> None:
        access.check(Right.CLUSTER_ADMIN, "")
        placement = self._cluster.image.placement(topic, number)
        if placement is None:
            raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic[:249]!r} has no partition {number}")
        if self._directories.directory_of(placement.key) != path:
            raise MillstreamError(
                ErrorCode.LOG_DIR_NOT_FOUND, f"partition {number} of {topic!r} is not in {path!r}, and cannot be moved"
            )
