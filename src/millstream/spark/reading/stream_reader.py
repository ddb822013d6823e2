"""Reads topics as a stream: the driver's part decides how far a batch goes, and tasks read it.

On the driver, one object lives as long as the query, in a process of its own. Copies on the executors use only `read`.
The state that the driver's part keeps between calls may be lost in a restart: the positions are stored by Spark.

Invariants: a position never moves backwards, whatever log ends brokers report after a failure. The one exception is a
log that is known to have lost messages that were read, under a policy that lets the query continue: there it moves to
the `resumed` offset. If there are no new messages, a position has the same text as before, and only then does
`latestOffset` wait for messages.
"""

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.process.log_event import LogEvent
from millstream.sdk.responses import ListedOffset
from millstream.spark.connections import client_of
from millstream.spark.options import DataLoss, SourceOptions
from millstream.spark.reading.offset_bounds import OffsetBound, PartitionBounds
from millstream.spark.reading.planning import admit, plan
from millstream.spark.reading.reachable_ranges import between, cut_back, is_resumed, recreated, still_there
from millstream.spark.reading.reader import Task, read_task
from millstream.spark.reading.stream_positions import (
    TopicPosition,
    beginning,
    begun,
    bytes_of,
    epochs_of,
    following,
    from_json,
    offsets_of,
    positions_of,
    resumed_of,
    to_json,
)
from millstream.spark.reading.topic_survey import SurveyedTopics, TopicSurvey, survey_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log = logging.getLogger("millstream.spark")

WAIT_S = 1.0
"""Maximum time that `latestOffset` waits for messages. Spark calls it again and again."""
_NOT_YET = 2**63 - 1
"""End offset of a partition that ends at a time which no message has reached yet."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader of the format "millstream".

    Spark calls `latestOffset`, `partitions` and `commit` once per batch.
    """

    def __init__(self, options: SourceOptions, schema: "StructType") -> None:
        self._options = options
        self._schema = schema
        self._final_offsets: dict[TopicPartition, int] | None = None
        """End of the stream by partition, set by an option or by the trigger `availableNow`. None: the stream does not
        end.
        """
        self._latest: dict[str, Any] | None = None
        """End offsets of the topics at the last `latestOffset`, as a position."""
        self._is_available_now = False
        """True if the trigger is `availableNow`."""
        self._committed: dict[TopicPartition, int] = {}
        """Offsets that were last committed to the group."""
        self._found = SurveyedTopics({}, ())
        """Topics and partitions that existed at the last survey."""
        self._compared: dict[TopicPartition, tuple[int, int]] = {}
        """Pairs of a position's leader epoch and a later one, for which the broker reported no truncation below the
        position.
        """

    @cached_property
    def _survey(self) -> TopicSurvey:
        return survey_of(self._options)

    # Positions.

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's names, here and below
        """Returns the start of the stream, without topics that do not exist.

        The first batch may be a repeated one whose topics were deleted since. `latestOffset` reports topics that never
        existed.
        """
        found = self._survey.find(known=self._options.topics)
        extents = self._survey.extents(found.places)
        starts = self._survey.offsets(self._options.starting, extents, OffsetBound.latest())
        for where, extent in extents.items():
            if starts[where] > extent.next:
                text = f"{where}: startingOffsets={starts[where]} is after the end of the partition ({extent.next})"
                raise MillstreamError(ErrorCode.INVALID_SETTING, text)
            starts[where], _ = still_there(
                where, starts[where], end=extent.next, reach=extent, policy=self._options.data_loss
            )
        epochs = _epochs(self._survey.heads(found.places))
        return to_json(beginning(positions_of(starts, found.ids, epochs=epochs)))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Makes the stream end at the current ends of the topics."""
        found = self._survey.find(known=self._options.topics)
        self._final_offsets = self._bounded(self._survey.ends(found.places))
        self._is_available_now = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Returns where the next batch ends. Waits up to `WAIT_S` if there is nothing to read."""
        before = from_json(start)
        after = self._reached(before, limit)
        if after == before:
            self._commit_offsets(before)
            if not self._is_available_now and self._wait(before):
                after = self._reached(before, limit)
        return to_json(after)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Returns the end offsets of the topics at the last survey; Spark shows them next to the query's position."""
        return self._latest

    def _reached(self, before: dict[str, TopicPosition], limit: ReadLimit) -> dict[str, TopicPosition]:
        """Returns where the next batch ends."""
        found = self._found = self._survey.find(known=before)
        heads = self._survey.heads(found.places)
        ends = {where: head.offset for where, head in heads.items()}
        self._latest = to_json(positions_of(ends, found.ids))
        resumed = self._resumed(_still_existing(before, found), heads) | self._first_available(before, found)
        starts = self._starts(before, found, ends) | resumed
        after = self._admitted(starts, self._bounded(ends), limit)
        for topic in before.keys() - found.ids.keys():
            self._check_missing_topic(topic)
        changed = {*_changed(before, positions_of(after, found.ids)), *resumed}
        # If a partition's offset does not change, neither do its message size and leader epoch.
        sizes = _unchanged(bytes_of(before), after, changed)
        sizes |= {where: round(size) for where, size in self._survey.bytes_each(sorted(changed)).items()}
        epochs = _unchanged(epochs_of(before), after, changed)
        epochs |= _epochs({where: heads[where] for where in changed})
        resumed = _unchanged(resumed_of(before), after, changed) | resumed
        return {**before, **following(before, positions_of(after, found.ids, sizes, epochs, resumed), starts)}

    def _starts(
        self, before: dict[str, TopicPosition], found: SurveyedTopics, ends: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Returns where the next batch begins. Raises UNKNOWN_TOPIC_ID for recreated topics if the policy is FAIL."""
        policy = self._options.data_loss
        others = {topic for topic, each in before.items() if found.ids.get(topic, each.topic_id) != each.topic_id}
        for topic in sorted(others):
            recreated(topic, before[topic].topic_id, found.ids[topic], policy)
        known = offsets_of(before)
        starts = {where: known.get(where, 0) for where in found.places}
        fresh = [where for where in found.places if where.topic in others]
        return starts | {where: ends[where] if policy is DataLoss.SKIP else 0 for where in fresh}

    def _resumed(
        self, before: dict[str, TopicPosition], heads: Mapping[TopicPartition, ListedOffset]
    ) -> dict[TopicPartition, int]:
        """Returns where to continue in logs that were truncated below the position.

        Raises OFFSET_OUT_OF_RANGE if the policy is FAIL.

        Only a later leader can have truncated the log, so the broker is asked once per new leader epoch.
        """
        offsets = offsets_of(before)
        pairs = {
            where: (epoch, heads[where].leader_epoch)
            for where, epoch in epochs_of(before).items()
            if where in heads and heads[where].leader_epoch > epoch
        }
        asked = {where: pair[0] for where, pair in pairs.items() if self._compared.get(where) != pair}
        resumed: dict[TopicPartition, int] = {}
        for where, end in self._survey.epoch_ends(asked).items():
            if 0 <= end < offsets[where]:
                cut_back(where, offsets[where], end=end, policy=self._options.data_loss)
                resumed[where] = heads[where].offset if self._options.data_loss is DataLoss.SKIP else end
            else:
                self._compared[where] = pairs[where]
        return resumed

    def _first_available(self, before: dict[str, TopicPosition], found: SurveyedTopics) -> dict[TopicPartition, int]:
        """Returns where to begin in new partitions whose first messages had expired when the stream found them.

        These messages do not count as lost. Recreated topics are not included: the policy decides about them.
        """
        known, same = offsets_of(before), _still_existing(before, found)
        new = [each for each in found.places if each not in known and (each.topic in same or each.topic not in before)]
        return {where: reach.first for where, reach in self._survey.extents(new).items() if reach.first > 0}

    def _check_missing_topic(self, topic: str) -> None:
        """Raises UNKNOWN_TOPIC_OR_PARTITION for a topic that was deleted or is no longer selected, if the policy is
        FAIL.
        """
        if self._options.data_loss is DataLoss.FAIL:
            why = "was deleted while it was read"
            if not self._options.wants(topic):
                why = "is in the checkpoint, but the options topic, topicPattern or partitions no longer select it"
            text = f"topic {topic!r} {why}; set dataLoss=skip to continue without it"
            raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)

    def _admitted(
        self, starts: dict[TopicPartition, int], ends: dict[TopicPartition, int], limit: ReadLimit
    ) -> dict[TopicPartition, int]:
        """Limits the ends of a batch to the options for rows and bytes per trigger."""
        ends = {where: max(starts[where], end) for where, end in ends.items()}
        if isinstance(limit, ReadAllAvailable):
            return ends
        if self._options.max_rows is not None:
            ends = admit(starts, ends, self._options.max_rows, dict.fromkeys(ends, 1.0))
        if self._options.max_bytes is not None:
            ends = admit(starts, ends, self._options.max_bytes, self._survey.bytes_each(list(ends)))
        assert all(starts[where] <= end for where, end in ends.items()), "a position never moves backwards"
        return ends

    # End of the stream.

    def _bounded(self, ends: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Limits the ends of a batch to the end of the stream."""
        if self._options.ending is not None and not self._is_available_now:
            self._final_offsets = self._ending_offsets(self._options.ending, list(ends))
        if self._final_offsets is None:
            return ends
        return {where: min(end, self._final_offset(where)) for where, end in ends.items()}

    def _ending_offsets(self, ending: PartitionBounds, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the end offsets that the ending options give, for the partitions where they are known.

        Each is looked up once, but a time is looked up again until a message has reached it.
        """
        last = self._final_offsets or {}
        if self._final_offsets is not None:
            places = [where for where in places if self._final_offset(where) == _NOT_YET]
            ending = PartitionBounds(
                None, partitions={where: ending.of(where, OffsetBound.latest()) for where in places}
            )
        extents = self._survey.extents(places)
        found = self._survey.offsets(ending, extents, OffsetBound.latest())
        reached = {each for each in places if found[each] < extents[each].next or not ending.is_time(each)}
        return {**last, **{where: found[where] for where in reached}}

    def _final_offset(self, where: TopicPartition) -> int:
        """Returns the end offset of the stream in a partition.

        A partition that is added later ends at its beginning, unless the stream ends at a time.
        """
        ending, last = self._options.ending, self._final_offsets or {}
        is_open = not self._is_available_now and ending is not None and ending.is_time(where)
        return last.get(where, _NOT_YET if is_open else 0)

    def _wait(self, before: dict[str, TopicPosition]) -> bool:
        """Waits until a wanted message arrives or `WAIT_S` has passed. Returns true if there may be new messages."""
        places = offsets_of(_still_existing(before, self._found))
        if self._final_offsets is not None:
            places = {where: offset for where, offset in places.items() if offset < self._final_offset(where)}
        try:
            if places:
                client = client_of(self._options.bootstrap)
                found = client.read_any(places, max_messages=1, max_bytes=1, wait=WAIT_S)
                return any(portion.messages for portion in found.values())
        except MillstreamError as error:
            # The next survey reports what happened to these topics.
            if error.code not in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                raise
        time.sleep(WAIT_S)  # There is no partition to wait for.
        return True

    # Batches.

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Returns the tasks of a batch.

        A repeated batch may contain topics that were deleted since. They are left out, unless the policy is FAIL.
        """
        after = from_json(end)
        before = begun(from_json(start), after)
        found = self._survey.find(known=after)
        existing = _still_existing(after, found)
        for topic in sorted({where.topic for where in _changed(before, after)} - existing.keys()):
            if topic in found.ids:
                recreated(topic, after[topic].topic_id, found.ids[topic], self._options.data_loss)
            else:
                self._check_missing_topic(topic)
        after = existing
        extents = self._survey.extents(_changed(before, after))
        ranges = between(before, after, extents, bytes_of(after), self._options.data_loss)
        return [Task(each) for each in plan(ranges, self._options.min_tasks)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_task(partition, self._options, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        """Commits the offsets of a finished batch to the group.

        Spark calls this when it plans the next batch. While there is no next batch, `latestOffset` commits instead:
        Spark calls that only after all earlier batches are done.
        """
        self._commit_offsets(from_json(end))

    def _commit_offsets(self, done: dict[str, TopicPosition]) -> None:
        """Commits the query's offsets to its group, if it has one.

        A retriable error is logged, and the next commit includes these offsets; the query continues.
        """
        offsets = offsets_of(_still_existing(done, self._found))
        if self._options.group is None or offsets in ({}, self._committed):
            return
        try:
            client_of(self._options.bootstrap).groups.commit(self._options.group, offsets)
        except MillstreamError as error:
            if error.code is ErrorCode.NON_EMPTY_GROUP:
                text = f"group {self._options.group!r} has members, whose committed offsets the query would overwrite"
                raise MillstreamError(error.code, f"{text}; set the option group to another name") from None
            if not error.code.retriable:
                raise
            event = "offset commit failed, retried after the next batch"
            _log.warning(LogEvent(event, group=self._options.group, error=error))
        else:
            self._committed = offsets


def _still_existing(positions: dict[str, TopicPosition], found: SurveyedTopics) -> dict[str, TopicPosition]:
    """Returns the positions of topics that still exist and were not recreated."""
    return {topic: each for topic, each in positions.items() if found.ids.get(topic) == each.topic_id}


def _changed(before: dict[str, TopicPosition], after: dict[str, TopicPosition]) -> list[TopicPartition]:
    """Returns the partitions of which a batch may read something.

    A recreated topic is compared with offset 0, since it may have reached the old topic's offset.
    """
    same = {topic: each for topic, each in before.items() if topic in after and after[topic].topic_id == each.topic_id}
    known = offsets_of(same)
    return [
        where
        for where, offset in offsets_of(after).items()
        if known.get(where, 0) != offset
        or (where.topic in same and is_resumed(same[where.topic], after[where.topic], where.partition))
    ]


def _unchanged(
    numbers: Mapping[TopicPartition, int], after: Mapping[TopicPartition, int], changed: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Returns the numbers of partitions that did not change."""
    return {where: number for where, number in numbers.items() if where in after and where not in changed}


def _epochs(heads: Mapping[TopicPartition, ListedOffset]) -> dict[TopicPartition, int]:
    return {where: head.leader_epoch for where, head in heads.items() if head.leader_epoch >= 0}
