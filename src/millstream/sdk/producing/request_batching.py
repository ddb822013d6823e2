"""Batches that go to one broker in the same turn of the event loop travel in one request.

A producer that writes to many partitions has a batch for each of them at once, and a request costs both ends more than
a small batch does. Invariants: requests go out in the order in which their batches came, at the end of the turn at the
latest; a request has no more than one batch of a partition, which is what its answer tells them apart by.
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

TOGETHER_BYTES = 1024 * 1024
"""As much as clients mostly send at a time: brokers have more room for requests of that size than for larger ones."""

TOGETHER_MAX = 1_000
"""Batches of one request: others at the broker have their turn after as many."""

_ALIKE_S = 0.05
"""How far the times may be apart by which batches of one request are to be answered."""

log = logging.getLogger("millstream.sdk.producer")

Answer = asyncio.Future[Produced | MillstreamError]


@dataclass(slots=True, eq=False)
class _Letter:
    """What is to be sent to one broker: batches by their partitions, and where their answers go."""

    timeout_s: float
    timeout_ms: int
    size_bytes: int = 0
    batches: dict[TopicPartition, Buffer] = field(default_factory=dict)
    answers: dict[TopicPartition, Answer] = field(default_factory=dict)

    def takes(self, where: TopicPartition, batch: Buffer, timeout_s: float) -> bool:
        """Whether a batch may travel with those that are in it."""
        return (
            where not in self.batches
            and len(self.batches) < TOGETHER_MAX
            and self.size_bytes + len(batch) <= TOGETHER_BYTES
            and abs(self.timeout_s - timeout_s) <= _ALIKE_S
        )


class RequestBatcher:
    """One producer's; used on its event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._open: dict[BrokerConnection, _Letter] = {}

    def post(
        self, connection: BrokerConnection, where: TopicPartition, batch: Buffer, timeout_s: float, timeout_ms: int
    ) -> Answer:
        """Send a batch, which has no ids and of which an answer is wanted (acks=all), within this turn."""
        letter = self._open.get(connection)
        if letter is not None and not letter.takes(where, batch, timeout_s):
            self._send(connection, letter)
            letter = None
        if letter is None:
            letter = self._open[connection] = _Letter(timeout_s, timeout_ms)
            self._loop.call_soon(self._send, connection, letter)
        letter.size_bytes += len(batch)
        letter.batches[where] = batch
        answer = letter.answers[where] = self._loop.create_future()
        return answer

    def _send(self, connection: BrokerConnection, letter: _Letter) -> None:
        if self._open.get(connection) is not letter:
            return
        del self._open[connection]
        try:
            posted = connection.post(_request(letter), letter.timeout_s)
        except MillstreamError as error:
            _answer(letter, error)
        except Exception as error:
            _answer(letter, client_failed(log, "sending", error))
        else:
            posted.add_done_callback(lambda answer: _pass_on(letter, answer))


def _request(letter: _Letter) -> ApiRequest[requests.PutResults]:
    return requests.puts_together(letter.batches, timeout_ms=letter.timeout_ms)


def _answer(letter: _Letter, error: MillstreamError) -> None:
    for answer in letter.answers.values():
        if not answer.done():
            answer.set_result(error)


def _pass_on(letter: _Letter, posted: "asyncio.Future[requests.PutResults | MillstreamError]") -> None:
    failure = posted.exception()
    for where, answer in letter.answers.items():
        if answer.done():
            continue
        if failure is not None:
            answer.set_exception(failure)
        else:
            found = posted.result()
            answer.set_result(found if isinstance(found, MillstreamError) else found[where])
