"""Produce: append each partition's batch; answer when all of them are committed.

On the common path nothing is awaited: what is committed at once is answered at once, and what waits for a flush is
answered by the flush's own callback. Batches that the topic wants opened first are appended a little later, in the
order in which they came (see `penstock.partition.opened`).
"""

import asyncio
from typing import NamedTuple

from penstock.broker.capabilities import PartitionLookup, find_partition
from penstock.broker.request import HangUpError, Later, Request, Result, Work
from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.names import INTERNAL_PREFIX
from penstock.partition.opened import InvalidRecords, Opener
from penstock.partition.partition import Appended
from penstock.wire.produce import ProduceRequest, ProduceResult, parse_produce_request, write_produce_response
from penstock.wire.topic_ref import TopicRef

NO_ACK = 0
_ACKS = (-1, NO_ACK, 1)
_EMPTY = memoryview(b"")

Results = list[tuple[TopicRef, list[ProduceResult]]]


class _Place(NamedTuple):
    """Where in the answer a partition's result stands."""

    results: list[ProduceResult]
    number: int

    def fill(self, appended: Appended) -> None:
        self.results[self.number] = _stored(self.results[self.number].partition, appended)

    def fail(self, error: BaseException) -> None:
        if not isinstance(error, PenstockError):
            error = PenstockError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        self.results[self.number] = _failed(self.results[self.number].partition, error)


class _UnderWay(NamedTuple):
    """What a request waits for: batches to be opened and appended, and flushes, each with what depends on it."""

    opening: "dict[asyncio.Future[Appended], _Place]"
    flushing: "dict[asyncio.Future[None], list[_Place]]"


class ProduceHandler:
    def __init__(self, partitions: PartitionLookup) -> None:
        self._partitions = partitions
        self._opener = Opener()

    def __call__(self, request: Request) -> Result:
        produce = parse_produce_request(request.version, request.frame, request.body)
        under_way = _UnderWay({}, {})
        if produce.acks in _ACKS:
            results = self._append_all(produce, under_way)
        else:
            error = PenstockError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {produce.acks}; it must be -1, 0 or 1")
            results = [
                (topic, [_failed(number, error) for number, _ in partitions]) for topic, partitions in produce.topics
            ]
        if produce.acks == NO_ACK:
            if under_way.opening:
                return Work(_hear(results, under_way))
            _hang_up_after_failure(results)
            return None
        if under_way.opening or under_way.flushing:
            return _Commit(request.version, results, under_way, produce.timeout_ms).later
        return write_produce_response(request.version, results)

    def _append_all(self, produce: ProduceRequest, under_way: _UnderWay) -> Results:
        answers: Results = []
        acks = produce.acks
        for topic, partitions in produce.topics:
            results: list[ProduceResult] = []
            for number, records in partitions:
                try:
                    if produce.transactional_id is not None:
                        raise PenstockError(ErrorCode.INVALID_TXN_STATE, "this broker has no transactions yet")
                    partition = find_partition(self._partitions, topic, number)
                    if partition.topic.startswith(INTERNAL_PREFIX):
                        raise PenstockError(ErrorCode.INVALID_TOPIC, f"only the broker writes to {partition.topic}")
                    batch = _EMPTY if records is None else records
                    if self._opener.is_needed(partition):
                        opening = self._opener.append(partition, batch, acks)
                        under_way.opening[opening] = _Place(results, len(results))
                        results.append(ProduceResult(number))
                        continue
                    appended = partition.append(batch, acks)
                except PenstockError as error:
                    results.append(_failed(number, error))
                    continue
                if appended.committed is not None and acks != NO_ACK:
                    under_way.flushing.setdefault(appended.committed, []).append(_Place(results, len(results)))
                results.append(_stored(number, appended))
            answers.append((topic, results))
        return answers


def _stored(number: int, appended: Appended) -> ProduceResult:
    return ProduceResult(number, 0, appended.base_offset, appended.log_append_time_ms, appended.log_start_offset)


def _failed(number: int, error: PenstockError) -> ProduceResult:
    records = error.records if isinstance(error, InvalidRecords) else ()
    return ProduceResult(number, error.code.number, message=error.detail, record_errors=records)


async def _hear(results: Results, under_way: _UnderWay) -> None:
    """Wait until batches that nobody is to be told of were appended. Who no longer waits does not call them off."""
    for future, place in under_way.opening.items():
        try:
            place.fill(await asyncio.shield(future))
        except PenstockError as error:
            place.fail(error)
    _hang_up_after_failure(results)


def _hang_up_after_failure(results: Results) -> None:
    """A write that wants no answer: the only way to tell of a failure is to hang up, so that the client asks anew."""
    for topic, partitions in results:
        for result in partitions:
            if result.error:
                raise HangUpError(ErrorCode.of(result.error), f"{topic}-{result.partition}: {result.message}")


class _Commit:
    """A produce request whose batches are written and wait to be flushed, or wait to be opened and written.

    The time that the client gives runs out on flushes only: a batch that waits to be opened holds memory, which is
    given back with the answer.
    """

    def __init__(self, version: int, results: Results, under_way: _UnderWay, timeout_ms: int) -> None:
        self.later = Later()
        self._version = version
        self._results = results
        self._opening, self._flushing = under_way
        self._timeout_ms = max(0, timeout_ms)
        self._is_late = False
        for appended in list(self._opening):
            appended.add_done_callback(self._appended)
        for committed in list(self._flushing):
            committed.add_done_callback(self._committed)
        delay_s = self._timeout_ms / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._timed_out)

    def _appended(self, future: "asyncio.Future[Appended]") -> None:
        place = self._opening.pop(future)
        error = future.exception()
        if error is not None:
            place.fail(error)
        else:
            self._filled(place, future.result())
        self._finish_if_over()

    def _filled(self, place: _Place, appended: Appended) -> None:
        place.fill(appended)
        committed = appended.committed
        if committed is None:
            return
        waiting = self._flushing.get(committed)
        if waiting is not None:
            waiting.append(place)
        else:
            self._flushing[committed] = [place]
            committed.add_done_callback(self._committed)
        if self._is_late:
            self._give_up()

    def _committed(self, future: "asyncio.Future[None]") -> None:
        waiting = self._flushing.pop(future, None)
        error = None if future.cancelled() else future.exception()
        if waiting is None:
            return
        if future.cancelled():
            error = PenstockError(ErrorCode.REQUEST_TIMED_OUT, "the broker is being stopped; the outcome is unknown")
        if error is not None:
            for place in waiting:
                place.fail(error)
        self._finish_if_over()

    def _timed_out(self) -> None:
        self._is_late = True
        self._give_up()
        self._finish_if_over()

    def _give_up(self) -> None:
        """Wait for no flush any longer."""
        error = PenstockError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"not flushed within {self._timeout_ms} ms; the outcome is unknown, the write may stand",
        )
        for waiting in self._flushing.values():
            for place in waiting:
                place.fail(error)
        self._flushing.clear()

    def _finish_if_over(self) -> None:
        if not self._opening and not self._flushing:
            self._timer.cancel()
            self.later.finish(write_produce_response(self._version, self._results))
