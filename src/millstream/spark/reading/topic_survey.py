"""Finds out, on the driver, which topics are read, where their partitions begin and end, and how large they are."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.responses import ListedOffset, TopicView, refusal
from millstream.sdk.sync.client import Client
from millstream.spark.connections import client_of
from millstream.spark.options import SourceOptions
from millstream.spark.reading.offset_bounds import BoundKind, OffsetBound, PartitionBounds
from millstream.spark.reading.reachable_ranges import ReadableRange

SIZES_S = 30.0
"""Time for which a size estimate is reused."""


class SurveyedTopics(NamedTuple):
    """Ids of the topics by name, and the partitions that are read."""

    ids: Mapping[str, UUID]
    places: Sequence[TopicPartition]


def survey_of(options: SourceOptions) -> "TopicSurvey":
    """Returns the survey for the options: of the topics alone, or of topics and archive."""
    client = client_of(options.bootstrap)
    if options.archive is None:
        return TopicSurvey(client, options)
    from millstream.spark.archive.archive_and_log import LongSurvey

    return LongSurvey(client, options)


def view_of(client: Client, topic: str) -> TopicView:
    """Returns the topic's current metadata. Raises UNKNOWN_TOPIC_OR_PARTITION if it does not exist."""
    view = client.metadata([topic]).topics.get(topic)
    number = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number if view is None else view.error_number
    if view is None or number:
        raise refusal(number, f"topic {topic!r}")
    return view


class TopicSurvey:
    """Asks the brokers about the topics that the options select."""

    def __init__(self, client: Client, options: SourceOptions) -> None:
        self._client = client
        self._options = options
        self._bytes_each: dict[TopicPartition, float] = {}
        self._sized_s = 0.0

    def find(self, known: Iterable[str] = ()) -> SurveyedTopics:
        """Returns the topics and partitions that exist now.

        Raises UNKNOWN_TOPIC_OR_PARTITION for a topic that does not exist, except for `known` topics: these existed
        earlier.
        """
        known = set(known)
        views = self._matching() if self._options.pattern is not None else self._named(known)
        places: list[TopicPartition] = []
        for view in views:
            numbers = [row.number for row in view.partitions]
            chosen = numbers if self._options.partitions is None else self._options.partitions[view.name]
            for number in chosen:
                if number not in numbers:
                    text = f"topic {view.name!r} has no partition {number} (option partitions); it has {len(numbers)}"
                    raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
            places += [TopicPartition(view.name, number) for number in sorted(chosen)]
        return SurveyedTopics({view.name: view.topic_id for view in views}, places)

    def _matching(self) -> list[TopicView]:
        pattern = re.compile(self._options.pattern or "")
        return [view for view in self._client.list_topics() if pattern.fullmatch(view.name)]

    def _named(self, known: set[str]) -> list[TopicView]:
        names = sorted(self._options.topics)
        found = self._client.metadata(names).topics
        views = []
        for name in names:
            view = found.get(name)
            number = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number if view is None else view.error_number
            if view is not None and not number:
                views.append(view)
            elif name not in known or number != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number:
                raise refusal(number, f"topic {name!r}")
        return views

    def extents(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, ReadableRange]:
        """Returns where each partition begins and ends now."""
        if not places:
            return {}
        first = self._client.offsets(dict.fromkeys(places, "beginning"))
        last = self.ends(places)
        return {where: ReadableRange(first[where].offset, last[where]) for where in places}

    def ends(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns where each partition ends now."""
        return {where: head.offset for where, head in self.heads(places).items()}

    def heads(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, ListedOffset]:
        """Returns where each partition ends now, with its leader epoch."""
        return self._client.offsets(dict.fromkeys(places, "latest")) if places else {}

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns where each leader epoch ended in the log, or -1 if that is not known."""
        return self._client.admin.epoch_ends(epochs) if epochs else {}

    def offsets(
        self, bounds: PartitionBounds, extents: Mapping[TopicPartition, ReadableRange], default: OffsetBound
    ) -> dict[TopicPartition, int]:
        """Resolves bounds to offsets. If no message is at or after a time, its offset is the end of the partition."""
        _check_named(bounds, extents, self._options.topics)
        found: dict[TopicPartition, int] = {}
        times: dict[TopicPartition, float] = {}
        for where, extent in extents.items():
            place = bounds.of(where, default)
            if place.kind is BoundKind.TIME:
                times[where] = place.number / 1000
            else:
                marks = {
                    BoundKind.EARLIEST: extent.first,
                    BoundKind.LATEST: extent.next,
                    BoundKind.OFFSET: place.number,
                }
                found[where] = marks[place.kind]
        if times:
            for where, listed in self._client.offsets(times).items():
                found[where] = listed.offset if listed.offset >= 0 else extents[where].next
        return found

    def bytes_each(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, float]:
        """Returns the estimated bytes per offset of each partition."""
        now_s = time.monotonic()
        if now_s >= self._sized_s + SIZES_S or any(where not in self._bytes_each for where in places):
            self._sized_s = now_s
            views = self._client.metadata(sorted({where.topic for where in places})).topics
            for view in views.values():
                for row in self._client.admin.partition_sizes(view):
                    offsets = row.extent.messages if row.extent is not None else 0
                    where = TopicPartition(view.name, row.view.number)
                    self._bytes_each[where] = max(1.0, (row.size_bytes or 0) / max(1, offsets))
        return {where: self._bytes_each.get(where, 1.0) for where in places}


def _check_named(
    bounds: PartitionBounds, extents: Mapping[TopicPartition, ReadableRange], wanted: Sequence[str]
) -> None:
    """Raises INVALID_SETTING for a bound of a topic or partition that is not read.

    Missing topics in `wanted` are accepted, because they were deleted since the query began.
    """
    topics = {where.topic for where in extents}
    missing = set(wanted) - topics
    strange = [str(where) for where in bounds.partitions if where not in extents and where.topic not in missing]
    strange += [topic for topic in bounds.topics if topic not in topics | missing]
    if strange:
        text = f"the starting or ending options name {strange[0]}, which the query does not read"
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)
