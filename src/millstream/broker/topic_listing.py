"""Topics with their partitions, page by page. A cursor says where the next page begins: a topic, by name, and the
number of its first partition that was left out."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from millstream.broker.dispatch.capabilities import TopicLookup
from millstream.broker.response_rows import Group
from millstream.catalog.catalog import Topic
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import check_topic_name
from millstream.partition.partition import Partition
from millstream.wire.schema_readers import Fields

PARTITIONS_MAX = 2_000
"""So many partitions one page has at most, whatever was asked for."""


class ListingCursor(NamedTuple):
    topic_name: str
    partition_index: int


class TopicRowFormat(NamedTuple):
    """How one answer shows things."""

    topic: Callable[[Topic], dict[str, Any]]
    partition: Callable[[Partition], dict[str, Any]]
    missing: Callable[[str, ErrorCode], dict[str, Any]]


class TopicListing:
    def __init__(self, topics: TopicLookup, rows: TopicRowFormat, partitions_max: int) -> None:
        self.following: ListingCursor | None = None
        self._topics = topics
        self._rows = rows
        self._room = max(1, min(partitions_max, PARTITIONS_MAX))

    def groups(self, names: Sequence[str], cursor: ListingCursor | None) -> Iterator[Group]:
        """The topics, in the order of their names, from the cursor on, as far as there is room for their partitions."""
        for name in names:
            if cursor and name < cursor.topic_name:
                continue
            first = cursor.partition_index if cursor and name == cursor.topic_name else 0
            topic = self._topics.topic(name)
            if topic is None:
                yield self._rows.missing(name, _why_missing(name)), ()
                continue
            if not self._room:
                self.following = ListingCursor(name, first)
                return
            shown = self._topics.of(name)[first : first + self._room]
            self._room -= len(shown)
            yield self._rows.topic(topic), map(self._rows.partition, shown)
            if first + len(shown) < topic.partitions:
                self.following = ListingCursor(name, first + len(shown))
                return


def cursor_of(fields: Fields | None) -> ListingCursor | None:
    """INVALID_REQUEST for one that no answer has given."""
    if fields is None:
        return None
    cursor = ListingCursor(fields["topic_name"], fields["partition_index"])
    if cursor.partition_index < 0:
        raise MillstreamError(ErrorCode.INVALID_REQUEST, f"no page begins at partition {cursor.partition_index}")
    return cursor


def _why_missing(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except MillstreamError as problem:
        return problem.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
