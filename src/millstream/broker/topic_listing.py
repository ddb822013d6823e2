"""Lists topics with their partitions, page by page.

A cursor marks the start of the next page: a topic name and the first partition of it that is not listed yet.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from millstream.broker.response_rows import Group
from millstream.catalog.catalog import Placement
from millstream.catalog.cluster_image import ClusterImage, ClusterTopic
from millstream.model.authorization import Access
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import check_topic_name
from millstream.wire.schema_readers import Fields

PARTITIONS_MAX = 2_000
"""Maximum number of partitions in one page, also if the request asks for more."""


class ListingCursor(NamedTuple):
    topic_name: str
    partition_index: int


class TopicRowFormat(NamedTuple):
    """The functions that build the rows of one API's response."""

    topic: Callable[[ClusterTopic], dict[str, Any]]
    partition: Callable[[Placement], dict[str, Any]]
    missing: Callable[[str, ErrorCode], dict[str, Any]]


def visible_topics(image: ClusterImage, access: Access) -> Sequence[str]:
    """Return the names of all topics that the request may see."""
    return [name for name in image.names if access.allows_topic(name)] if access.is_limited else image.names


class TopicListing:
    def __init__(self, image: ClusterImage, rows: TopicRowFormat, partitions_max: int, access: Access) -> None:
        self.following: ListingCursor | None = None
        self._image = image
        self._rows = rows
        self._access = access
        self._room = max(1, min(partitions_max, PARTITIONS_MAX))

    def groups(self, names: Sequence[str], cursor: ListingCursor | None) -> Iterator[Group]:
        """Yield the topics by name, from the cursor on, until the page is full. `following` is then the next cursor."""
        for name in names:
            if cursor and name < cursor.topic_name:
                continue
            if not self._access.allows_topic(name):
                yield self._rows.missing(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED), ()
                continue
            first = cursor.partition_index if cursor and name == cursor.topic_name else 0
            topic = self._image.topic(name)
            if topic is None:
                yield self._rows.missing(name, _why_missing(name)), ()
                continue
            if not self._room:
                self.following = ListingCursor(name, first)
                return
            shown = topic.placements[first : first + self._room]
            self._room -= len(shown)
            yield self._rows.topic(topic), map(self._rows.partition, shown)
            if first + len(shown) < topic.partitions:
                self.following = ListingCursor(name, first + len(shown))
                return


def cursor_of(fields: Fields | None) -> ListingCursor | None:
    """Read the cursor of a request. Raises INVALID_REQUEST for a negative partition, which no response contains."""
    if fields is None:
        return None
    cursor = ListingCursor(fields["topic_name"], fields["partition_index"])
    if cursor.partition_index < 0:
        raise MillstreamError(ErrorCode.INVALID_REQUEST, f"the cursor's partition {cursor.partition_index} is negative")
    return cursor


def _why_missing(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except MillstreamError as problem:
        return problem.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
