"""Collects the results of one Produce or Puts request and writes the response once every batch is acknowledged.

The common path awaits nothing. If all batches are acknowledged at once, the response is written at once. If a batch
waits for a flush, the callback of its acknowledgement writes the response.
"""

from collections.abc import Callable
from typing import ClassVar

from msgspec import Struct

from millstream.broker.dispatch.capabilities import ImageSource, LedElsewhereError, current_leader
from millstream.broker.dispatch.open_changes import APPENDS, Targets
from millstream.broker.dispatch.request import CloseConnectionError, DeferredResponse, Result
from millstream.broker.dispatch.request_targets import named_partitions
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.append_result import AppendResult
from millstream.partition.appender import Appended
from millstream.partition.pending_appends import AppendDeadlines, PendingAppends
from millstream.partition.produce_rules import InvalidRecords
from millstream.partition.put_deduplication import KnownIds
from millstream.partition.watermark import ACKS_NONE
from millstream.wire.current_leader import CurrentLeader
from millstream.wire.produce import ProduceResult
from millstream.wire.topic_ref import TopicRef

ACKS = (-1, 0, 1)
_NO_TIMEOUT_MS = 2**31 - 1
"""A write with acks=0 has no response, so its timeout means nothing."""

Results = list[tuple[TopicRef, list[ProduceResult]]]
Write = Callable[[int, Results], bytes]
"""Encodes the response for an API version."""


def check_acks(acks: int) -> None:
    """Raise INVALID_REQUIRED_ACKS unless `acks` is -1, 0 or 1."""
    if acks not in ACKS:
        raise MillstreamError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; it must be -1, 0 or 1")


def stored(number: int, appended: AppendResult) -> ProduceResult:
    return ProduceResult(number, 0, appended.base_offset, appended.log_append_time_ms, appended.log_start_offset)


def failed(number: int, error: MillstreamError, leader: CurrentLeader | None = None) -> ProduceResult:
    """Return the row of a batch that was not stored, or whose outcome is unknown."""
    records = error.records if isinstance(error, InvalidRecords) else ()
    known = error.known if isinstance(error, KnownIds) else ()
    not_appended = isinstance(error, LedElsewhereError)
    if isinstance(error, LedElsewhereError):
        leader = error.leader
    return ProduceResult(
        number,
        error.code.number,
        message=error.detail,
        record_errors=records,
        known=known,
        current_leader=leader,
        not_appended=not_appended,
    )


class _Row(Struct, eq=False):
    """Fills in one row of the response when its append completes or fails."""

    _response: "AppendResponse"
    _rows: list[ProduceResult]
    _index: int

    def stored(self, appended: AppendResult) -> None:
        self._rows[self._index] = stored(self._rows[self._index].partition, appended)

    def failed(self, error: BaseException) -> None:
        if not isinstance(error, MillstreamError):
            error = MillstreamError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        self._response.fail(self._rows, self._index, error)


class AppendResponse(Struct, eq=False):
    """Collects the rows of one request and writes its response. It is the open change of its deferred response."""

    kind: ClassVar[int] = APPENDS
    _write: Write
    _version: int
    _deadlines: AppendDeadlines
    _cluster: ImageSource
    results: Results = []
    _pending: PendingAppends | None = None
    _later: DeferredResponse | None = None

    def add(self, rows: list[ProduceResult], number: int, appended: Appended) -> None:
        """Add the row of a batch in partition `number`."""
        if not isinstance(appended, AppendResult):
            self._begin_waiting().open(appended, _Row(self, rows, len(rows)))
            rows.append(ProduceResult(number))
            return
        if appended.acknowledgement is not None:
            pending = self._pending or self._begin_waiting()
            pending.add(appended.acknowledgement, _Row(self, rows, len(rows)))
        rows.append(stored(number, appended))

    def fail(self, rows: list[ProduceResult], index: int, error: MillstreamError) -> None:
        """Change a row after its batch was refused late. A lost leadership names the leader of the current image."""
        number, leader = rows[index].partition, None
        if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            topic = next(topic for topic, of_topic in self.results if of_topic is rows)
            leader = current_leader(self._cluster.image, topic, number)
        rows[index] = failed(number, error, leader)

    def targets(self) -> Targets:
        """Return the partitions of all batches."""
        rows = [(topic, row.partition) for topic, of_topic in self.results for row in of_topic]
        return set(named_partitions(self._cluster.image, rows))

    def _begin_waiting(self) -> PendingAppends:
        if self._pending is None:
            self._pending = PendingAppends(self._deadlines)
        return self._pending

    def result(self, acks: int, *, timeout_ms: int) -> Result:
        """Return the response, deferred if an append is still pending. With acks=0 the deferred response is empty.

        Call once, after every batch was added.
        """
        pending = self._pending
        if acks == ACKS_NONE:
            if pending is None:
                self._hang_up_after_failure()
                return None
            later = self._later = DeferredResponse(change=self)
            pending.begin(_NO_TIMEOUT_MS, self._finish_unanswered)
            return later
        if pending is None:
            return self._write(self._version, self.results)
        later = self._later = DeferredResponse(change=self)
        pending.begin(timeout_ms, self._finish)
        return later

    def _finish(self) -> None:
        later = self._later
        assert later is not None, "the appends complete only after the response was deferred"
        try:
            answer = self._write(self._version, self.results)
        except Exception as error:  # One callback completes several requests; the others must go on.
            later.fail(error)
        else:
            later.finish(answer)

    def _finish_unanswered(self) -> None:
        later = self._later
        assert later is not None, "the appends complete only after the response was deferred"
        try:
            self._hang_up_after_failure()
        except CloseConnectionError as error:
            later.fail(error)
        else:
            later.finish(None)

    def _hang_up_after_failure(self) -> None:
        """Close the connection if a batch failed: a write with acks=0 has no response that could report it."""
        for topic, partitions in self.results:
            for result in partitions:
                if result.error:
                    raise CloseConnectionError(
                        ErrorCode.of(result.error), f"{topic}-{result.partition}: {result.message}"
                    )
