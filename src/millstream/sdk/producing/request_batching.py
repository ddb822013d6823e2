"""Sends all batches for one broker that arrive in the same event loop iteration in one request.

A producer that writes to many partitions has a batch for each of them at once, and a request costs client and broker
more than a small batch. Invariants:

- requests are sent in the order of their batches, at the latest at the end of the iteration;
- a request has at most one batch per partition, because its response identifies batches by partition.
"""

import asyncio
import logging
from dataclasses import dataclass, field

from millstream.model.errors import MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk import requests
from millstream.sdk.background_errors import client_failed
from millstream.sdk.connection.connection import BrokerConnection
from millstream.sdk.responses import Produced
from millstream.wire.client_connection import ApiRequest
from millstream.wire.framing import Buffer

REQUEST_BYTES_MAX = 1024 * 1024
"""Maximum size of a shared request. Brokers have more memory for requests up to this size than for larger ones."""

REQUEST_BATCHES_MAX = 1_000
"""Maximum number of batches in a request, so that the broker can serve other connections in between."""

_TIMEOUT_DIFFERENCE_S = 0.05
"""Maximum difference between the timeouts of batches in one request."""

log = logging.getLogger("millstream.sdk.producer")

Answer = asyncio.Future[Produced | MillstreamError]


@dataclass(slots=True, eq=False)
class _PendingRequest:
    """A request that is being filled: its batches by partition, and the futures of their answers."""

    timeout_s: float
    timeout_ms: int
    size_bytes: int = 0
    batches: dict[TopicPartition, Buffer] = field(default_factory=dict)
    answers: dict[TopicPartition, Answer] = field(default_factory=dict)

    def fits(self, where: TopicPartition, batch: Buffer, timeout_s: float) -> bool:
        """Return True if the batch fits into this request."""
        return (
            where not in self.batches
            and len(self.batches) < REQUEST_BATCHES_MAX
            and self.size_bytes + len(batch) <= REQUEST_BYTES_MAX
            and abs(self.timeout_s - timeout_s) <= _TIMEOUT_DIFFERENCE_S
        )


class RequestBatcher:
    """Collects batches into requests, for one producer on its event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pending: dict[BrokerConnection, _PendingRequest] = {}

    def post(
        self, connection: BrokerConnection, where: TopicPartition, batch: Buffer, timeout_s: float, timeout_ms: int
    ) -> Answer:
        """Send a batch without ids, with acks=all, in this event loop iteration."""
        pending = self._pending.get(connection)
        if pending is not None and not pending.fits(where, batch, timeout_s):
            self._send(connection, pending)
            pending = None
        if pending is None:
            pending = self._pending[connection] = _PendingRequest(timeout_s, timeout_ms)
            self._loop.call_soon(self._send, connection, pending)
        assert where not in pending.batches, "a request has one batch per partition"
        pending.size_bytes += len(batch)
        pending.batches[where] = batch
        answer = pending.answers[where] = self._loop.create_future()
        return answer

    def _send(self, connection: BrokerConnection, pending: _PendingRequest) -> None:
        if self._pending.get(connection) is not pending:
            return
        del self._pending[connection]
        try:
            posted = connection.post(_request(pending), pending.timeout_s)
        except MillstreamError as error:
            _fail(pending, error)
        except Exception as error:
            _fail(pending, client_failed(log, "sending batches", error))
        else:
            posted.add_done_callback(lambda answer: _distribute_answers(pending, answer))


def _request(pending: _PendingRequest) -> ApiRequest[requests.PutResults]:
    return requests.puts_together(pending.batches, timeout_ms=pending.timeout_ms)


def _fail(pending: _PendingRequest, error: MillstreamError) -> None:
    for answer in pending.answers.values():
        if not answer.done():
            answer.set_result(error)


def _distribute_answers(
    pending: _PendingRequest, posted: "asyncio.Future[requests.PutResults | MillstreamError]"
) -> None:
    failure = posted.exception()
    for where, answer in pending.answers.items():
        if answer.done():
            continue
        if failure is not None:
            answer.set_exception(failure)
        else:
            found = posted.result()
            answer.set_result(found if isinstance(found, MillstreamError) else found[where])
