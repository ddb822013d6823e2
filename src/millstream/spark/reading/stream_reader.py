"""Topics as a stream: the driver's part says how far a batch goes, the tasks read it.

One object lives as long as the query, in a process of its own; others, of which only `read` is used, are sent to the
executors. What the driver's part remembers between calls is nothing that a restart would miss: positions are Spark's.

Invariants: a position never goes back, whatever brokers say of their ends after a failure; only where a log is known to
have lost what was read, and reading is to go on all the same, it begins anew there. A position without news is the same
text as before, and only then is it waited for news.
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
"""How long a batch's end is waited for where there is no news; Spark asks again and again."""
_NOT_YET = 2**63 - 1
"""The end of a stream that ends by a time which no message has reached."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: "StructType") -> None:
        self._options = options
        self._schema = schema
        self._last: dict[TopicPartition, int] | None = None
        """Where the stream ends, once that is known: the option says so, or Spark wants what is there now."""
        self._seen: dict[str, Any] | None = None
        self._is_now = False
        self._told: dict[TopicPartition, int] = {}
        self._found = SurveyedTopics({}, ())
        """What there was to read when it was last looked."""
        self._compared: dict[TopicPartition, tuple[int, int]] = {}
        """Pairs of leader epochs, that of a position and a later one, between which nothing was lost."""

    @cached_property
    def _survey(self) -> TopicSurvey:
        return survey_of(self._options)

    # Where it is.

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's names, here and below
        """Without topics that are not there: the first batch may be one that is repeated, and they may be gone since.
        If they never were there, `latestOffset` says so."""
        found = self._survey.find(known=self._options.topics)
        extents = self._survey.extents(found.places)
        starts = self._survey.offsets(self._options.starting, extents, OffsetBound.latest())
        for where, extent in extents.items():
            if starts[where] > extent.next:
                text = f"{where}: startingOffsets says {starts[where]}, but it ends at {extent.next}"
                raise MillstreamError(ErrorCode.INVALID_SETTING, text)
            starts[where], _ = still_there(where, starts[where], extent.next, extent, self._options.data_loss)
        epochs = _epochs(self._survey.heads(found.places))
        return to_json(beginning(positions_of(starts, found.ids, epochs=epochs)))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on the stream ends where the topics end now."""
        found = self._survey.find(known=self._options.topics)
        self._last = self._bounded(self._survey.ends(found.places))
        self._is_now = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        before = from_json(start)
        after = self._reached(before, limit)
        if after == before:
            self._tell(before)
            if not self._is_now and self._wait(before):
                after = self._reached(before, limit)
        return to_json(after)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Where the topics ended when it was last asked; Spark shows it beside how far the query is."""
        return self._seen

    def _reached(self, before: dict[str, TopicPosition], limit: ReadLimit) -> dict[str, TopicPosition]:
        """How far the next batch goes."""
        found = self._found = self._survey.find(known=before)
        heads = self._survey.heads(found.places)
        ends = {where: head.offset for where, head in heads.items()}
        self._seen = to_json(positions_of(ends, found.ids))
        resumed = self._resumed(_there(before, found), heads) | self._first_there(before, found)
        starts = self._starts(before, found, ends) | resumed
        after = self._admitted(starts, self._bounded(ends), limit)
        for topic in before.keys() - found.ids.keys():
            self._gone(topic)
        changed = {*_changed(before, positions_of(after, found.ids)), *resumed}
        # What goes with an offset stays as it was where that stays: about what a message takes, who leads.
        sizes = _kept(bytes_of(before), after, changed)
        sizes |= {where: round(size) for where, size in self._survey.bytes_each(sorted(changed)).items()}
        epochs = _kept(epochs_of(before), after, changed)
        epochs |= _epochs({where: heads[where] for where in changed})
        resumed = _kept(resumed_of(before), after, changed) | resumed
        return {**before, **following(before, positions_of(after, found.ids, sizes, epochs, resumed), starts)}

    def _starts(
        self, before: dict[str, TopicPosition], found: SurveyedTopics, ends: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Where the next batch begins; UNKNOWN_TOPIC_ID for topics that were made anew, if that is a failure."""
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
        """Where to go on in logs that have lost something that was read; OFFSET_OUT_OF_RANGE if that is a failure.

        Only a leadership that came later can have lost it, and each is asked once.
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
                cut_back(where, offsets[where], end, self._options.data_loss)
                resumed[where] = heads[where].offset if self._options.data_loss is DataLoss.SKIP else end
            else:
                self._compared[where] = pairs[where]
        return resumed

    def _first_there(self, before: dict[str, TopicPosition], found: SurveyedTopics) -> dict[TopicPartition, int]:
        """Where to begin with what was not there before, if its first messages had gone by then: they are no loss to
        the stream. Topics that were made anew are a matter of policy."""
        known, same = offsets_of(before), _there(before, found)
        new = [each for each in found.places if each not in known and (each.topic in same or each.topic not in before)]
        return {where: reach.first for where, reach in self._survey.extents(new).items() if reach.first > 0}

    def _gone(self, topic: str) -> None:
        if self._options.data_loss is DataLoss.FAIL:
            why = "was deleted while it was read"
            if not self._options.wants(topic):
                why = "is in the checkpoint, but the options of this start do not ask for it any more"
            text = f"topic {topic!r} {why}; dataLoss=skip goes on without it"
            raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)

    def _admitted(
        self, starts: dict[TopicPartition, int], ends: dict[TopicPartition, int], limit: ReadLimit
    ) -> dict[TopicPartition, int]:
        ends = {where: max(starts[where], end) for where, end in ends.items()}
        if isinstance(limit, ReadAllAvailable):
            return ends
        if self._options.max_rows is not None:
            ends = admit(starts, ends, self._options.max_rows, dict.fromkeys(ends, 1.0))
        if self._options.max_bytes is not None:
            ends = admit(starts, ends, self._options.max_bytes, self._survey.bytes_each(list(ends)))
        return ends

    # Where it ends.

    def _bounded(self, ends: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        if self._options.ending is not None and not self._is_now:
            self._last = self._said_ends(self._options.ending, list(ends))
        if self._last is None:
            return ends
        return {where: min(end, self._last_of(where)) for where, end in ends.items()}

    def _said_ends(self, ending: PartitionBounds, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the option has these end, looked up once; a time again, for as long as no message has reached it."""
        last = self._last or {}
        if self._last is not None:
            places = [where for where in places if self._last_of(where) == _NOT_YET]
            ending = PartitionBounds(
                None, partitions={where: ending.of(where, OffsetBound.latest()) for where in places}
            )
        extents = self._survey.extents(places)
        found = self._survey.offsets(ending, extents, OffsetBound.latest())
        reached = {each for each in places if found[each] < extents[each].next or not ending.is_time(each)}
        return {**last, **{where: found[where] for where in reached}}

    def _last_of(self, where: TopicPartition) -> int:
        """Where the stream ends there, if it does: at once in a partition that comes later, unless a time says."""
        ending, last = self._options.ending, self._last or {}
        is_open = not self._is_now and ending is not None and ending.is_time(where)
        return last.get(where, _NOT_YET if is_open else 0)

    def _wait(self, before: dict[str, TopicPosition]) -> bool:
        """Until a message comes that is wanted, or some time is over; whether there may be news."""
        places = offsets_of(_there(before, self._found))
        if self._last is not None:
            places = {where: offset for where, offset in places.items() if offset < self._last_of(where)}
        try:
            if places:
                client = client_of(self._options.bootstrap)
                found = client.read_any(places, max_messages=1, max_bytes=1, wait=WAIT_S)
                return any(portion.messages for portion in found.values())
        except MillstreamError as error:
            # What has become of the topics is for those to say who look next.
            if error.code not in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                raise
        time.sleep(WAIT_S)  # Nobody could be waited for.
        return True

    # What a batch reads.

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """A batch that is repeated may be of topics that were deleted since; unless that is a failure, it goes without
        them."""
        after = from_json(end)
        before = begun(from_json(start), after)
        found = self._survey.find(known=after)
        there = _there(after, found)
        for topic in sorted({where.topic for where in _changed(before, after)} - there.keys()):
            if topic in found.ids:
                recreated(topic, after[topic].topic_id, found.ids[topic], self._options.data_loss)
            else:
                self._gone(topic)
        after = there
        extents = self._survey.extents(_changed(before, after))
        ranges = between(before, after, extents, bytes_of(after), self._options.data_loss)
        return [Task(each) for each in plan(ranges, self._options.min_tasks)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_task(partition, self._options, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        """A batch is done. Spark says so when it has planned the next; while there is none, `latestOffset` tells of it:
        where that is asked for, all before is done."""
        self._tell(from_json(end))

    def _tell(self, done: dict[str, TopicPosition]) -> None:
        """Where there is a group, it is told how far the query is. Whoever cannot be told now is told later: the query
        does not end for that."""
        offsets = offsets_of(_there(done, self._found))
        if self._options.group is None or offsets in ({}, self._told):
            return
        try:
            client_of(self._options.bootstrap).groups.commit(self._options.group, offsets)
        except MillstreamError as error:
            if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
                text = f"group {self._options.group!r} has members, whose own positions these would overwrite"
                raise MillstreamError(error.code, f"{text}; give the option group another name") from None
            if not error.code.retriable:
                raise
            _log.warning("group %r is not told how far the query is: %s", self._options.group, error)
        else:
            self._told = offsets


def _there(positions: dict[str, TopicPosition], found: SurveyedTopics) -> dict[str, TopicPosition]:
    """Those of topics that are there still, and are the same."""
    return {topic: each for topic, each in positions.items() if found.ids.get(topic) == each.topic_id}


def _changed(before: dict[str, TopicPosition], after: dict[str, TopicPosition]) -> list[TopicPartition]:
    """Partitions of which a batch may read something; a topic that was made anew may be as far as the old one was."""
    same = {topic: each for topic, each in before.items() if topic in after and after[topic].topic_id == each.topic_id}
    known = offsets_of(same)
    return [
        where
        for where, offset in offsets_of(after).items()
        if known.get(where, 0) != offset
        or (where.topic in same and is_resumed(same[where.topic], after[where.topic], where.partition))
    ]


def _kept(
    numbers: Mapping[TopicPartition, int], after: Mapping[TopicPartition, int], changed: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    return {where: number for where, number in numbers.items() if where in after and where not in changed}


def _epochs(heads: Mapping[TopicPartition, ListedOffset]) -> dict[TopicPartition, int]:
    return {where: head.leader_epoch for where, head in heads.items() if head.leader_epoch >= 0}
