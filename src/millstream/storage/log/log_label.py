"""Names a log in log lines: by its topic and partition, once the topic's name is known, and by its path."""

from collections.abc import Mapping

from millstream.model.names import PartitionKey


class LogLabel:
    """The fields of one log in log lines. The storage knows no topics, so the partitions name it."""

    __slots__ = ("_partition", "_topic", "path")

    def __init__(self, key: PartitionKey, path: str) -> None:
        self.path = path
        self._partition = key.partition
        self._topic = ""

    def named(self, topic: str) -> None:
        """Takes the name of the topic."""
        self._topic = topic

    @property
    def fields(self) -> Mapping[str, object]:
        topic = {"topic": self._topic} if self._topic else {}
        return {**topic, "partition": self._partition, "path": self.path}
