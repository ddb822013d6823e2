"""Appending what a request brings, and answering once all of it is committed: what Produce and Puts have in common.

On the common path nothing is awaited: what is committed at once is answered at once, and what waits for a flush is
answered by the flush's own callback. Batches that must be opened first are appended a little later, in the order in
which they came, whichever of the two requests brought them (see `millstream.partition.opened_batches`).
"""

import asyncio
from collections.abc import Callable
from math import inf

from millstream.broker.dispatch.request import CloseConnectionError, DeferredResponse, Result, Work
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import INTERNAL_PREFIX
from millstream.partition.append_result import AppendResult
from millstream.partition.opened_batches import BatchOpener, InvalidRecords
from millstream.partition.partition import Partition
from millstream.partition.put_deduplication import PUT, KnownIds, put, put_job
from millstream.storage.flush.flush_round import FlushRound
from millstream.wire.produce import ProduceResult
from millstream.wire.puts import PutsEntry
from millstream.wire.topic_ref import TopicRef

NO_ACK = 0
ACKS = (-1, NO_ACK, 1)
_EMPTY = memoryview(b"")

Results = list[tuple[TopicRef, list[ProduceResult]]]
Write = Callable[[int, Results], bytes]
"""Writes the answer of a version."""


class AppendRequest:
    """One for all requests of a broker: what waits in a partition's queue waits there for everybody."""

    def __init__(self) -> None:
        self.opener = BatchOpener()
        self.deadlines = AppendDeadlines()

    def append(
        self,
        waiting: "PendingAppend",
        results: list[ProduceResult],
        partition: Partition,
        batch: memoryview | None,
        acks: int,
    ) -> None:
        """Append a batch, or have it opened and appended, and put what is known of it among the results.

        Raises what `Partition.append` does, and then nothing is among the results.
        """
        if partition.topic.startswith(INTERNAL_PREFIX):
            raise _only_the_brokers(partition)
        records = _EMPTY if batch is None else batch
        if self.opener.is_needed(partition):
            waiting.open(results, partition, self.opener.append(partition, records, acks))
        else:
            waiting.add(results, partition, partition.append(records, acks), acks)

    def put(
        self,
        waiting: "PendingAppend",
        results: list[ProduceResult],
        partition: Partition,
        entry: PutsEntry,
        acks: int,
    ) -> None:
        """As `append`, for a batch that came by Puts."""
        if partition.topic.startswith(INTERNAL_PREFIX):
            raise _only_the_brokers(partition)
        if entry.message_ids is not None and acks == NO_ACK:
            raise MillstreamError(ErrorCode.INVALID_REQUIRED_ACKS, "message ids need an answer, and acks=0 wants none")
        records = _EMPTY if entry.records is None else entry.records
        job = put_job(partition, records, entry.message_ids)
        if job is not None or self.opener.is_needed(partition):
            waiting.open(results, partition, self.opener.append(partition, records, acks, job or PUT))
        else:
            waiting.add(results, partition, put(partition, records, acks), acks)


def _only_the_brokers(partition: Partition) -> MillstreamError:
    return MillstreamError(ErrorCode.INVALID_TOPIC, f"only the broker writes to {partition.topic}")


def check_acks(acks: int) -> None:
    """INVALID_REQUIRED_ACKS for acks that mean nothing."""
    if acks not in ACKS:
        raise MillstreamError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; it must be -1, 0 or 1")


def stored(number: int, appended: AppendResult) -> ProduceResult:
    return ProduceResult(number, 0, appended.base_offset, appended.log_append_time_ms, appended.log_start_offset)


def failed(number: int, error: MillstreamError) -> ProduceResult:
    records = error.records if isinstance(error, InvalidRecords) else ()
    known = error.known if isinstance(error, KnownIds) else ()
    return ProduceResult(number, error.code.number, message=error.detail, record_errors=records, known=known)


async def _hear(waiting: "PendingAppend") -> None:
    """Wait until batches that nobody is to be told of were appended. Who no longer waits does not call them off."""
    for future, place in waiting.opening.items():
        try:
            place.fill(await asyncio.shield(future))
        except MillstreamError as error:
            place.fail(error)
    _hang_up_after_failure(waiting.results)


def _hang_up_after_failure(results: Results) -> None:
    """A write that wants no answer: the only way to tell of a failure is to hang up, so that the client asks anew."""
    for topic, partitions in results:
        for result in partitions:
            if result.error:
                raise CloseConnectionError(ErrorCode.of(result.error), f"{topic}-{result.partition}: {result.message}")


class ResponseSlot:
    """Where in the answer a partition's result stands, and the flush that it depends on."""

    __slots__ = ("_number", "_results", "_waiting", "commit")

    def __init__(
        self, waiting: "PendingAppend", results: list[ProduceResult], number: int, commit: FlushRound | None = None
    ) -> None:
        self.commit = commit
        self._waiting = waiting
        self._results = results
        self._number = number

    def fill(self, appended: AppendResult) -> None:
        self._results[self._number] = stored(self._results[self._number].partition, appended)

    def fail(self, error: BaseException) -> None:
        if not isinstance(error, MillstreamError):
            error = MillstreamError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        self._results[self._number] = failed(self._results[self._number].partition, error)

    def flushed(self, commit: FlushRound) -> None:
        self._waiting.flushed(self, commit.error)


class PendingAppend:
    """A request whose batches are written and wait to be flushed, or wait to be opened and written.

    The time that the client gives runs out on flushes only: a batch that waits to be opened holds memory, which is
    given back with the answer.
    """

    __slots__ = (
        "_deadlines",
        "_is_late",
        "_later",
        "_timeout_ms",
        "_version",
        "_write",
        "opening",
        "places",
        "results",
    )

    def __init__(self, write: Write, version: int, deadlines: "AppendDeadlines") -> None:
        self.results: Results = []
        self.opening: dict[asyncio.Future[AppendResult], ResponseSlot] = {}
        self.places: list[ResponseSlot] = []
        """Those that wait for a flush."""
        self._deadlines = deadlines
        self._write = write
        self._version = version
        self._timeout_ms = 0
        self._is_late = False

    def add(self, results: list[ProduceResult], partition: Partition, appended: AppendResult, acks: int) -> None:
        """A batch was appended."""
        if appended.committed is not None and acks != NO_ACK:
            self.places.append(ResponseSlot(self, results, len(results), appended.committed))
        results.append(stored(partition.number, appended))

    def open(self, results: list[ProduceResult], partition: Partition, opening: asyncio.Future[AppendResult]) -> None:
        """A batch will be appended when it was opened."""
        self.opening[opening] = ResponseSlot(self, results, len(results))
        results.append(ProduceResult(partition.number))

    def result(self, acks: int, timeout_ms: int) -> Result:
        """What answers the request, now that all of it was appended or waits to be."""
        if acks == NO_ACK:
            if self.opening:
                return Work(_hear(self))
            _hang_up_after_failure(self.results)
            return None
        if self.places or self.opening:
            return self._begin(timeout_ms)
        return self._write(self._version, self.results)

    def _begin(self, timeout_ms: int) -> DeferredResponse:
        """The answer, when nothing is waited for any longer."""
        self._later = DeferredResponse()
        self._timeout_ms = max(0, timeout_ms)
        self._deadlines.add(self, self._timeout_ms / 1000)
        for place in tuple(self.places):  # One whose flush is over already leaves at once.
            assert place.commit is not None
            place.commit.then(place.flushed)
        for appended in self.opening:
            appended.add_done_callback(self._appended)
        return self._later

    def _appended(self, future: "asyncio.Future[AppendResult]") -> None:
        place = self.opening.pop(future)
        error = future.exception()
        if error is not None:
            place.fail(error)
            # Where the first copies are is told once those are durable.
            place.commit = error.committed if isinstance(error, KnownIds) else None
        else:
            appended = future.result()
            place.fill(appended)
            place.commit = appended.committed
        self._wait_for(place)
        self._finish_if_over()

    def _wait_for(self, place: ResponseSlot) -> None:
        if place.commit is None:
            return
        self.places.append(place)
        if self._is_late:
            self._give_up()
        else:
            place.commit.then(place.flushed)

    def flushed(self, place: ResponseSlot, error: BaseException | None) -> None:
        if self._is_late:
            return
        self.places.remove(place)
        if error is not None:
            place.fail(error)
        self._finish_if_over()

    def time_out(self) -> None:
        self._is_late = True
        self._give_up()
        self._finish_if_over()

    def _give_up(self) -> None:
        """Wait for no flush any longer."""
        error = MillstreamError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"not flushed within {self._timeout_ms} ms; the outcome is unknown, the write may stand",
        )
        for place in self.places:
            place.fail(error)
        self.places.clear()

    def _finish_if_over(self) -> None:
        if self.opening or self.places:
            return
        self._deadlines.remove(self)
        try:
            answer = self._write(self._version, self.results)
        except Exception as error:  # Whoever calls has others to tell as well.
            self._later.fail(error)
        else:
            self._later.finish(answer)


class AppendDeadlines:
    """When requests have waited long enough: one timer for all of them, since hardly one ever waits so long.

    Invariant: while somebody waits, the timer is set, and not later than the first deadline.
    """

    def __init__(self) -> None:
        self._at_s: dict[PendingAppend, float] = {}
        self._next_s = inf
        self._timer: asyncio.TimerHandle | None = None

    def add(self, waiting: PendingAppend, delay_s: float) -> None:
        at_s = asyncio.get_running_loop().time() + delay_s
        self._at_s[waiting] = at_s
        if at_s < self._next_s:
            self._set(at_s)

    def remove(self, waiting: PendingAppend) -> None:
        self._at_s.pop(waiting, None)

    def _set(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_s = at_s
        self._timer = asyncio.get_running_loop().call_at(at_s, self._look)

    def _look(self) -> None:
        now_s = asyncio.get_running_loop().time()
        due = [waiting for waiting, at_s in self._at_s.items() if at_s <= now_s]
        for waiting in due:
            del self._at_s[waiting]
        self._timer, self._next_s = None, inf
        if self._at_s:
            self._set(min(self._at_s.values()))
        for waiting in due:
            waiting.time_out()
