"""The topics as groups see them."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol


class TopicInfo(NamedTuple):
    name: str
    topic_id: bytes
    """16 bytes."""
    partitions: int


class TopicImage(Protocol):
    """What exists now. `version` is another number whenever any of it has changed."""

    @property
    def version(self) -> int: ...

    def get(self, name: str) -> TopicInfo | None: ...

    def by_id(self, topic_id: bytes) -> TopicInfo | None: ...

    def names(self) -> Iterable[str]:
        """Of all topics that users can subscribe to, sorted."""
        ...
