"""Produce: append each partition's batch; answer when all of them are committed.

On the common path nothing is awaited: what is committed at once is answered at once, and what waits for a flush is
answered by the flush's own callback.
"""

import asyncio
from functools import partial

from penstock.broker.capabilities import PartitionLookup, find_partition
from penstock.broker.request import HangUpError, Later, Request, Result
from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.names import INTERNAL_PREFIX
from penstock.wire.produce import ProduceRequest, ProduceResult, parse_produce_request, write_produce_response
from penstock.wire.topic_ref import TopicRef

NO_ACK = 0
_ACKS = (-1, NO_ACK, 1)
_EMPTY = memoryview(b"")

Results = list[tuple[TopicRef, list[ProduceResult]]]
Waiting = dict["asyncio.Future[None]", list[tuple[list[ProduceResult], int]]]
"""Flushes that are waited for, each with the results that depend on it."""


class ProduceHandler:
    def __init__(self, partitions: PartitionLookup) -> None:
        self._partitions = partitions

    def __call__(self, request: Request) -> Result:
        produce = parse_produce_request(request.version, request.frame, request.body)
        waiting: Waiting = {}
        if produce.acks in _ACKS:
            results = self._append_all(produce, waiting)
        else:
            error = PenstockError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {produce.acks}; it must be -1, 0 or 1")
            results = [
                (topic, [_failed(number, error) for number, _ in partitions]) for topic, partitions in produce.topics
            ]
        if produce.acks == NO_ACK:
            _hang_up_after_failure(results)
            return None
        if waiting:
            return _Commit(request.version, results, waiting, produce.timeout_ms).later
        return write_produce_response(request.version, results)

    def _append_all(self, produce: ProduceRequest, waiting: Waiting) -> Results:
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
                    appended = partition.append(_EMPTY if records is None else records, acks)
                except PenstockError as error:
                    results.append(_failed(number, error))
                    continue
                if appended.committed is not None and acks != NO_ACK:
                    waiting.setdefault(appended.committed, []).append((results, len(results)))
                results.append(
                    ProduceResult(
                        number, 0, appended.base_offset, appended.log_append_time_ms, appended.log_start_offset
                    )
                )
            answers.append((topic, results))
        return answers


def _failed(number: int, error: PenstockError) -> ProduceResult:
    return ProduceResult(number, error.code.number, message=error.detail)


def _hang_up_after_failure(results: Results) -> None:
    """A write that wants no answer: the only way to tell of a failure is to hang up, so that the client asks anew."""
    for topic, partitions in results:
        for result in partitions:
            if result.error:
                raise HangUpError(ErrorCode.of(result.error), f"{topic}-{result.partition}: {result.message}")


class _Commit:
    """A produce request whose batches are written and wait to be flushed."""

    def __init__(self, version: int, results: Results, waiting: Waiting, timeout_ms: int) -> None:
        self.later = Later()
        self._version = version
        self._results = results
        self._waiting = waiting
        for committed in list(waiting):
            committed.add_done_callback(self._committed)
        delay_s = max(0, timeout_ms) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, partial(self._timed_out, timeout_ms))

    def _committed(self, future: "asyncio.Future[None]") -> None:
        waiting = self._waiting.pop(future, None)
        error = None if future.cancelled() else future.exception()
        if waiting is None:
            return
        if future.cancelled():
            error = PenstockError(ErrorCode.REQUEST_TIMED_OUT, "the broker is being stopped; the outcome is unknown")
        if error is not None:
            self._fail(waiting, error)
        if not self._waiting:
            self._timer.cancel()
            self.later.finish(write_produce_response(self._version, self._results))

    def _timed_out(self, timeout_ms: int) -> None:
        error = PenstockError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"not flushed within {timeout_ms} ms; the outcome is unknown, the write may stand",
        )
        for waiting in self._waiting.values():
            self._fail(waiting, error)
        self._waiting.clear()
        self.later.finish(write_produce_response(self._version, self._results))

    def _fail(self, waiting: list[tuple[list[ProduceResult], int]], error: BaseException) -> None:
        if not isinstance(error, PenstockError):
            error = PenstockError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        for results, index in waiting:
            results[index] = _failed(results[index].partition, error)
