"""Sends the batches of one partition in order and retries them; sequence numbers let the broker store each once.

Batches are sent under an identity (producer id and epoch) from the broker, with consecutive sequence numbers. The
broker stores a sequence number once, so a batch can be sent again until its outcome is known. Without errors, several
batches are in flight on one connection, which keeps their order. After the first error the queue waits for the answers
of all batches in flight, and then settles them one by one. Invariants:

- A batch keeps its identity and sequence number through all attempts once one attempt may have been stored.
- An identity is not used on a partition again after a batch under it was given up with an unknown outcome. Otherwise
  the next batch would have the same number, and the broker would take it for the lost one.
- The first batch under an identity is sent alone, because a broker that does not know the identity accepts any number.
- A batch whose messages have ids has no number. It is sent alone, and the broker recognises a retry by the ids.
- With `in_order`, batches are sent one by one, and none after a failed one.
- A number that the caller has read as part of a message id is not reused: its batch fails, and no other gets it.
- A batch loses its number before it is split or moved to another partition.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, NamedTuple, Protocol

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.process.log_event import LogEvent
from millstream.sdk.connection.connection import BrokerConnection, ConnectionLostError
from millstream.sdk.connection.retry_policy import Attempts, Deadline
from millstream.sdk.producing.batch_compression import BatchCompressor
from millstream.sdk.producing.batches import NOBODY, has_ids, number, take_back
from millstream.sdk.producing.chunk import ProducerBatch
from millstream.sdk.producing.failures import IDENTITY_REFUSED, TOO_LARGE, OutcomeUnknownError, perhaps_stored
from millstream.sdk.producing.options import ALL
from millstream.sdk.producing.producer_identities import ProducerIdentities
from millstream.sdk.producing.receipt_waiters import log
from millstream.sdk.requests import KnownIdsError
from millstream.sdk.responses import Produced, ProducerIdentity
from millstream.seams.entropy import Entropy

IN_FLIGHT_MAX = 5
"""Maximum number of batches in flight. Brokers recognise retries of a producer's last five batches."""

IDS_MAX = 10_000
"""Maximum number of messages with ids in a batch; brokers limit it per request."""

SEQUENCE_MODULUS = 2**31

Answer = asyncio.Future[Produced | MillstreamError]


class BatchRoute(Protocol):
    """Sends batches to a partition's leader. `supports_ids` is whether the last known leader supports message ids."""

    supports_ids: bool

    @property
    def leader_epoch(self) -> int:
        """The epoch of the cached leader; -1 if `find` would request metadata first."""
        ...

    async def find(self, deadline: Deadline) -> BrokerConnection:
        """Return a connection to the leader. After an error nothing was sent."""
        ...

    async def send(self, connection: BrokerConnection, batch: ProducerBatch, deadline: Deadline) -> Produced:
        """Send a batch and wait for the answer."""
        ...

    def post(
        self, batch: ProducerBatch, same: BrokerConnection | None, when_room: Callable[[], None]
    ) -> "InFlightBatch | None":
        """Send a batch without waiting; returns None if that is impossible now.

        `same` is the connection of the batches in flight, which must be used to keep the order. `when_room` is called
        later if the send buffer was full.
        """
        ...


class InFlightBatch(NamedTuple):
    """The connection and the future answer of a batch that was sent."""

    connection: BrokerConnection
    answer: Answer


class _SentBatch(NamedTuple):
    batch: ProducerBatch
    answer: Answer


class PartitionQueue:
    """Queues and sends the batches of one partition. `settled` is called with each batch once its outcome is final.

    `move` distributes a batch to other partitions if its partition no longer exists; it returns False if it must not.
    """

    def __init__(
        self,
        where: TopicPartition,
        route: BatchRoute,
        identities: ProducerIdentities,
        entropy: Entropy,
        settled: Callable[[ProducerBatch, MillstreamError | None], None],
        move: Callable[[ProducerBatch], Awaitable[bool]],
        compressor: BatchCompressor,
    ) -> None:
        self.where = where
        self._route = route
        self._identities = identities
        self._entropy = entropy
        self._settled = settled
        self._move = move
        self._compressor = compressor
        self._waiting: deque[ProducerBatch] = deque()
        self._in_flight: deque[_SentBatch] = deque()
        self._single: list[ProducerBatch] = []
        self._identity: ProducerIdentity | None = None
        self._next_sequence = 0
        self._is_accepted = False
        self._is_stopped = False
        self._connection: BrokerConnection | None = None
        self._task: asyncio.Task[None] | None = None

    def add(self, batch: ProducerBatch) -> None:
        """Append a batch to the queue."""
        self._waiting.append(batch)
        self._compressor.begin(batch, self.pump)
        self.pump()

    def pump(self) -> None:
        """Send as many batches as may be in flight."""
        while self._waiting and self._task is None:
            if len(self._in_flight) >= IN_FLIGHT_MAX or self._compressor.holds(self._waiting[0]):
                return
            if not self._post(self._waiting[0]):
                if not self._in_flight:
                    self._begin(self._take_one())
                return
            self._waiting.popleft()

    def give_up(self) -> None:
        """Stop sending, because the producer is closed. Unsent batches fail; sent ones have an unknown outcome."""
        if self._task is not None:
            self._task.cancel()
        self._settle_all("the producer was closed", ErrorCode.REQUEST_TIMED_OUT)

    def _settle_all(self, why: str, unsent: ErrorCode) -> None:
        left = [*self._single, *(each.batch for each in self._in_flight), *self._waiting]
        self._single.clear()
        self._in_flight.clear()
        self._waiting.clear()
        for batch in left:
            if not batch.is_settled:
                error = MillstreamError(ErrorCode.NETWORK_EXCEPTION, f"{why} before an answer arrived")
                if batch.was_sent:
                    self._settled(batch, OutcomeUnknownError(self.where, error, unanswered=True))
                else:
                    self._settled(batch, MillstreamError(unsent, f"{self.where}: nothing was sent; {why} first"))

    # Several batches in flight, without errors.

    def _post(self, batch: ProducerBatch) -> bool:
        """Send a batch after those in flight; returns False if it must wait or be sent alone."""
        if self._identity is None or not self._is_accepted:
            return False
        options = batch.chunk.options
        if options.acks != ALL or options.in_order or batch.chunk.deadline.is_over or has_ids(batch):
            return False
        sequence = self._next_sequence
        if self._in_flight:
            last = self._in_flight[-1].batch
            sequence = (last.base_sequence + last.count) % SEQUENCE_MODULUS
        try:
            number(batch, self._identity, sequence)
            if (batch.identity, batch.base_sequence) != (self._identity, sequence):  # The caller has read an id.
                return False
            posted = self._route.post(batch, self._connection if self._in_flight else None, self.pump)
        except Exception:
            return False  # Nothing was sent. The error comes again when the batch is sent alone.
        if posted is None:
            return False
        self._connection = posted.connection
        batch.was_sent = True
        self._in_flight.append(_SentBatch(batch, posted.answer))
        posted.answer.add_done_callback(self._answered)
        return True

    def _answered(self, answer: Answer) -> None:
        answer.exception()  # Marks it as retrieved, also after the batch was given up.
        while self._task is None and self._in_flight and self._in_flight[0].answer.done():
            outcome = _outcome(self._in_flight[0].answer)
            if isinstance(outcome, MillstreamError):
                self._begin(self._recover())
                return
            self._confirm(self._in_flight.popleft().batch, outcome)
        self.pump()

    # One batch at a time.

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._task is None, "only one task works on the queue"
        self._task = asyncio.get_running_loop().create_task(self._run_alone(work))

    async def _run_alone(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` while nothing else is sent. An unexpected exception fails all queued batches, not later ones."""
        try:
            await work
        except Exception as error:
            log.exception(LogEvent("sending failed unexpectedly", **self.where._asdict()))
            self._retire(self._identity)
            self._settle_all(f"the producer failed ({error!r})", ErrorCode.CLIENT_FAILED)
        self._task = None
        self.pump()

    async def _take_one(self) -> None:
        """Send the first batch alone until it is settled."""
        self._single = [self._waiting.popleft()]
        await self._settle_each([None])

    async def _recover(self) -> None:
        """Settle all batches in flight one by one, in order, after one of them failed."""
        sent = list(self._in_flight)
        await asyncio.wait([each.answer for each in sent])
        self._single = [each.batch for each in sent]
        self._in_flight.clear()
        await self._settle_each([_outcome(each.answer) for each in sent])

    async def _settle_each(self, outcomes: "list[Produced | MillstreamError | None]") -> None:
        for batch, outcome in zip(list(self._single), outcomes, strict=True):
            await self._settle_one(batch, outcome)

    async def _settle_one(self, batch: ProducerBatch, outcome: Produced | MillstreamError | None) -> None:
        try:
            produced = await self._store(batch, outcome)
        except KnownIdsError as error:
            await self._settle_known(batch, error.known)
        except OutcomeUnknownError as error:
            self._retire(batch.identity)
            self._single.remove(batch)
            self._fail(batch, error)
        except MillstreamError as error:
            await self._settle_refused(batch, error)
        else:
            self._single.remove(batch)
            self._confirm(batch, produced)

    async def _settle_refused(self, batch: ProducerBatch, error: MillstreamError) -> None:
        """Handle a batch that is certainly not stored: split it if it is too large, move it if its partition is gone.

        Otherwise the batch fails. Its number is removed first, so that no id that is read later contains it.
        """
        is_free = take_back(batch)
        if is_free and error.code in TOO_LARGE and batch.count > 1:
            made = await self._compressor.halves(batch)
            self._single.remove(batch)
            self._single += made
            for part in made:
                await self._settle_one(part, None)
        elif is_free and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and await self._move(batch):
            self._single.remove(batch)
            self._is_accepted = False  # A recreated partition does not know the identity.
        else:
            self._single.remove(batch)
            if not is_free:
                self._retire(batch.identity)
            self._fail(batch, error)

    async def _settle_known(self, batch: ProducerBatch, known: Mapping[int, int]) -> None:
        """Handle a batch of which some messages were stored before: confirm those, and send the others."""
        left = [position for position in range(batch.count) if position not in known]
        shares = [[position] for position in known] + ([left] if left else [])
        made = await self._compressor.parts(batch, shares)
        self._single.remove(batch)
        for part, offset in zip(made, known.values(), strict=False):
            part.is_duplicate = True
            self._confirm(part, Produced(offset, -1, -1))
        if left:
            self._single.append(made[-1])
            await self._settle_one(made[-1], None)

    async def _store(self, batch: ProducerBatch, outcome: Produced | MillstreamError | None) -> Produced:
        """Send the batch until it is stored once. `outcome` is the outcome of its first attempt, if there was one.

        Raises OutcomeUnknownError if the deadline passes and the batch may be stored. After any other error it is not
        stored. A batch with neither number nor ids is not retried after a lost answer, because the broker would not
        recognise the retry.
        """
        deadline: Deadline = batch.chunk.deadline
        if self._is_stopped:
            text = f"{self.where}: nothing was sent; a message before it was not stored"
            raise MillstreamError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text)
        if outcome is None and deadline.is_over:
            text = f"{self.where}: nothing was sent; the delivery timeout passed while the batch was queued"
            raise MillstreamError(ErrorCode.REQUEST_TIMED_OUT, text)
        attempts = Attempts(self._entropy, deadline)
        if isinstance(outcome, MillstreamError):
            _record_failure(batch, outcome)
        while True:
            if outcome is None:
                outcome = await self._attempt(batch, deadline)
            if isinstance(outcome, Produced):
                return outcome
            error, outcome = outcome, None
            if batch.in_doubt and error.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                return Produced(-1, -1, -1)
            is_numbered = batch.base_sequence >= 0
            if error.code in IDENTITY_REFUSED and is_numbered and not batch.in_doubt and not batch.is_shown:
                again = await self._renumber(batch, attempts)
            else:
                is_known = is_numbered or (batch.ids is not None and self._route.supports_ids)
                again = is_known or not batch.in_doubt
                if again and not attempts.follows(error, self._route.leader_epoch):
                    again = await attempts.again(error)
            if not again:
                cause = attempts.root_cause(error)
                if batch.in_doubt and not isinstance(error, KnownIdsError):
                    raise OutcomeUnknownError(self.where, cause, unanswered=batch.unanswered) from error
                if cause is not error:
                    raise cause from error
                raise error

    async def _attempt(self, batch: ProducerBatch, deadline: Deadline) -> Produced | MillstreamError:
        assert not self._in_flight, "a batch in single mode is the only one in flight"
        assert not self._is_stopped, "with in_order, no batch is sent after a failed one"
        try:
            await self._compressor.add_ids(batch)
            if batch.chunk.options.acks != ALL or has_ids(batch):
                number(batch, NOBODY, -1)
            elif not batch.in_doubt:
                if self._identity is None:
                    self._identity = await self._identities.current(deadline)
                    self._next_sequence = 0
                    self._is_accepted = False
                number(batch, self._identity, self._next_sequence)
            if batch.ids is not None and batch.count > IDS_MAX:
                text = f"{self.where}: a batch of {batch.count} messages with ids exceeds the limit of {IDS_MAX}"
                raise MillstreamError(ErrorCode.MESSAGE_TOO_LARGE, text)
            connection = await self._route.find(deadline)
        except MillstreamError as error:
            return error
        batch.was_sent = True
        try:
            return await self._route.send(connection, batch, deadline)
        except MillstreamError as error:
            _record_failure(batch, error)
            return error

    async def _renumber(self, batch: ProducerBatch, attempts: Attempts) -> bool:
        """Prepare a new number for a batch that the broker refused because of its number; returns whether to retry.

        Either an earlier batch was refused, which left a gap, or the broker no longer knows the identity.
        """
        is_ours = batch.identity == self._identity and batch.base_sequence != self._next_sequence
        if is_ours or batch.identity != self._identity:
            return True
        self._retire(batch.identity)
        return await attempts.pause()

    def _confirm(self, batch: ProducerBatch, produced: Produced) -> None:
        if batch.identity is not None and batch.identity == self._identity:
            self._next_sequence = (batch.base_sequence + batch.count) % SEQUENCE_MODULUS
            self._is_accepted = True
        batch.base_offset = produced.base_offset
        batch.append_time_ms = produced.log_append_time_ms
        self._settled(batch, None)

    def _fail(self, batch: ProducerBatch, error: MillstreamError) -> None:
        self._is_stopped = self._is_stopped or batch.chunk.options.in_order
        self._settled(batch, error)

    def _retire(self, identity: ProducerIdentity | None) -> None:
        """Send no new batch of this partition under this identity. Other partitions keep using it."""
        if identity is None or identity is NOBODY:
            return
        self._identities.retire(identity)
        if identity == self._identity:
            self._identity = None


def _record_failure(batch: ProducerBatch, error: MillstreamError) -> None:
    """Record whether a failed attempt leaves the outcome of the batch unknown."""
    batch.in_doubt = batch.in_doubt or perhaps_stored(error)
    batch.unanswered = batch.unanswered or isinstance(error, ConnectionLostError)


def _outcome(answer: Answer) -> Produced | MillstreamError:
    error = answer.exception()
    if error is None:
        return answer.result()
    if isinstance(error, MillstreamError):
        return error
    raise error
