"""Batches of one partition, each stored once and in order: sequence numbers, and what is known when no answer comes.

Batches go under an identity (producer id and epoch) that the broker gave, with sequence numbers that follow one
another. The broker stores a sequence number once, so the same batch can be sent again until its fate is known. As long
as all goes well, some batches are under way at once on one connection, which keeps their order; at the first answer
that is not good, all that are under way are waited for, and then seen through one by one. Invariants:

- A batch keeps its identity and sequence numbers through all its attempts once one of them may have been stored.
- An identity is never used on a partition again after a batch under it was given up with its fate unknown: the next
  batch would carry the same numbers, and would be taken for the lost one.
- The first batch under an identity goes alone: to a broker that does not know it yet, any number would be the first.
- A batch whose messages have ids of their own has no number: it goes alone, and the broker knows a retry by the ids.
- Where order is to be kept (`in_order`), batches go one by one, and none after one that failed.
- A number that somebody was told of, as part of a message id, is not taken back: the batch fails instead, and no other
  batch gets that number.
- A batch that is taken apart, or goes to another partition, has its number taken back before.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, NamedTuple, Protocol

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.connection.connection import BrokerConnection, ConnectionLostError
from millstream.sdk.connection.retry_policy import Attempts, Deadline
from millstream.sdk.producing.batch_compression import BatchCompressor
from millstream.sdk.producing.batches import NOBODY, has_ids, number, take_back
from millstream.sdk.producing.chunk import ProducerBatch
from millstream.sdk.producing.failures import IDENTITY_REFUSED, TOO_LARGE, OutcomeUnknownError, perhaps_stored
from millstream.sdk.producing.options import ALL
from millstream.sdk.producing.receipt_waiters import log
from millstream.sdk.requests import KnownIdsError
from millstream.sdk.responses import Produced, ProducerIdentity
from millstream.seams.entropy import Entropy

IN_FLIGHT_MAX = 5
"""Brokers remember the last five batches of a producer, so that a retry of any of them is known as one."""

IDS_MAX = 10_000
"""Messages with ids of their own in a batch; brokers bound how many one request may have."""

SEQUENCE_MODULUS = 2**31

Answer = asyncio.Future[Produced | MillstreamError]


class BatchRoute(Protocol):
    """The way to a partition's leader. `keeps_ids` says whether that knows a message by its id, as far as is known."""

    keeps_ids: bool

    async def find(self, deadline: Deadline) -> BrokerConnection:
        """A connection to the leader; an error means that nothing was sent."""
        ...

    async def send(self, connection: BrokerConnection, batch: ProducerBatch, deadline: Deadline) -> Produced:
        """Send, and give the answer."""
        ...

    def post(
        self, batch: ProducerBatch, same: BrokerConnection | None, when_room: Callable[[], None]
    ) -> "InFlightBatch | None":
        """Send at once, and on the connection `same` if anything is under way there; None if that cannot be.

        `when_room` is called later where it cannot be for want of room.
        """
        ...


class InFlightBatch(NamedTuple):
    """A batch under way."""

    connection: BrokerConnection
    answer: Answer


class ProducerIdentities:
    """The identity that a producer's partitions share, until one of them has reason not to."""

    def __init__(self, ask: Callable[[Deadline], Awaitable[ProducerIdentity]]) -> None:
        self._ask = ask
        self._asking = asyncio.Lock()
        self._current: ProducerIdentity | None = None

    async def current(self, deadline: Deadline) -> ProducerIdentity:
        async with self._asking:
            if self._current is None:
                self._current = await self._ask(deadline)
        return self._current

    def retire(self, identity: ProducerIdentity) -> None:
        """Whoever needs an identity from now on gets another."""
        if identity == self._current:
            self._current = None


class _Flying(NamedTuple):
    batch: ProducerBatch
    answer: Answer


class PartitionQueue:
    """The queue in front of one partition. `settled` is told of each batch when its fate is known.

    `move` is asked to take a batch whose partition is gone elsewhere; False where it must not.
    """

    def __init__(
        self,
        where: TopicPartition,
        route: BatchRoute,
        identities: ProducerIdentities,
        entropy: Entropy,
        settled: Callable[[ProducerBatch, MillstreamError | None], None],
        move: Callable[[ProducerBatch], Awaitable[bool]],
        packing: BatchCompressor,
    ) -> None:
        self.where = where
        self._route = route
        self._identities = identities
        self._entropy = entropy
        self._settled = settled
        self._move = move
        self._packing = packing
        self._waiting: deque[ProducerBatch] = deque()
        self._flying: deque[_Flying] = deque()
        self._alone: list[ProducerBatch] = []
        self._identity: ProducerIdentity | None = None
        self._next_sequence = 0
        self._is_proven = False
        self._is_stopped = False
        self._connection: BrokerConnection | None = None
        self._task: asyncio.Task[None] | None = None

    def add(self, batch: ProducerBatch) -> None:
        """Queue a batch behind the others."""
        self._waiting.append(batch)
        self._packing.begin(batch, self.pump)
        self.pump()

    def pump(self) -> None:
        """Send what may be sent."""
        while self._waiting and self._task is None:
            if len(self._flying) >= IN_FLIGHT_MAX or self._packing.holds(self._waiting[0]):
                return
            if not self._post(self._waiting[0]):
                if not self._flying:
                    self._begin(self._take_one())
                return
            self._waiting.popleft()

    def give_up(self) -> None:
        """The producer ends: nothing is tried any more, and all that is left is settled by what is known of it."""
        if self._task is not None:
            self._task.cancel()
        self._settle_all("the producer was closed", ErrorCode.REQUEST_TIMED_OUT)

    def _settle_all(self, why: str, unsent: ErrorCode) -> None:
        left = [*self._alone, *(each.batch for each in self._flying), *self._waiting]
        self._alone.clear()
        self._flying.clear()
        self._waiting.clear()
        for batch in left:
            if not batch.is_settled:
                error = MillstreamError(ErrorCode.NETWORK_EXCEPTION, f"{why} before an answer came")
                if batch.was_sent:
                    self._settled(batch, OutcomeUnknownError(self.where, error, unanswered=True))
                else:
                    self._settled(batch, MillstreamError(unsent, f"{self.where}: nothing was sent; {why} first"))

    # While all goes well.

    def _post(self, batch: ProducerBatch) -> bool:
        """Send a batch behind those under way; False when it must wait, or go alone."""
        if self._identity is None or not self._is_proven:
            return False
        options = batch.chunk.options
        if options.acks != ALL or options.in_order or batch.chunk.deadline.is_over or has_ids(batch):
            return False
        sequence = self._next_sequence
        if self._flying:
            last = self._flying[-1].batch
            sequence = (last.base_sequence + last.count) % SEQUENCE_MODULUS
        try:
            number(batch, self._identity, sequence)
            if (batch.identity, batch.base_sequence) != (self._identity, sequence):  # Somebody was told of an id.
                return False
            posted = self._route.post(batch, self._connection if self._flying else None, self.pump)
        except Exception:
            return False  # Nothing was sent: whatever it is, it comes again when the batch has its turn alone.
        if posted is None:
            return False
        self._connection = posted.connection
        batch.was_sent = True
        self._flying.append(_Flying(batch, posted.answer))
        posted.answer.add_done_callback(self._answered)
        return True

    def _answered(self, answer: Answer) -> None:
        answer.exception()  # Marks it as seen: whoever gave up does not look.
        while self._task is None and self._flying and self._flying[0].answer.done():
            outcome = _outcome(self._flying[0].answer)
            if isinstance(outcome, MillstreamError):
                self._begin(self._recover())
                return
            self._confirm(self._flying.popleft().batch, outcome)
        self.pump()

    # One by one.

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.get_running_loop().create_task(self._see_to(work))

    async def _see_to(self, work: Coroutine[Any, Any, None]) -> None:
        """Nothing else is sent meanwhile. A fault of ours fails all that waits here, and holds up nothing after it."""
        try:
            await work
        except Exception as error:
            log.exception("sending to %s failed unexpectedly", self.where)
            self._retire(self._identity)
            self._settle_all(f"the producer failed ({error!r})", ErrorCode.CLIENT_FAILED)
        self._task = None
        self.pump()

    async def _take_one(self) -> None:
        """See the first batch through alone."""
        self._alone = [self._waiting.popleft()]
        await self._see_all_through([None])

    async def _recover(self) -> None:
        """Something under way was not stored, or nobody knows: see all of it through, in order."""
        flying = list(self._flying)
        await asyncio.wait([each.answer for each in flying])
        self._alone = [each.batch for each in flying]
        self._flying.clear()
        await self._see_all_through([_outcome(each.answer) for each in flying])

    async def _see_all_through(self, outcomes: "list[Produced | MillstreamError | None]") -> None:
        for batch, outcome in zip(list(self._alone), outcomes, strict=True):
            await self._settle_one(batch, outcome)

    async def _settle_one(self, batch: ProducerBatch, outcome: Produced | MillstreamError | None) -> None:
        try:
            produced = await self._see_through(batch, outcome)
        except KnownIdsError as error:
            await self._settle_known(batch, error.known)
        except OutcomeUnknownError as error:
            self._retire(batch.identity)
            self._alone.remove(batch)
            self._fail(batch, error)
        except MillstreamError as error:
            await self._settle_refused(batch, error)
        else:
            self._alone.remove(batch)
            self._confirm(batch, produced)

    async def _settle_refused(self, batch: ProducerBatch, error: MillstreamError) -> None:
        """It is not stored. What its topic can take in another form or place is given that, the rest fails.

        First its number is taken back: whoever asks for an id from then on is told none that could change.
        """
        is_free = take_back(batch)
        if is_free and error.code in TOO_LARGE and batch.count > 1:
            made = await self._packing.halves(batch)
            self._alone.remove(batch)
            self._alone += made
            for part in made:
                await self._settle_one(part, None)
        elif is_free and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and await self._move(batch):
            self._alone.remove(batch)
            self._is_proven = False  # Should the partition ever be there again, its broker knows no number of ours.
        else:
            self._alone.remove(batch)
            if not is_free:
                self._retire(batch.identity)
            self._fail(batch, error)

    async def _settle_known(self, batch: ProducerBatch, known: Mapping[int, int]) -> None:
        """Some of its messages were stored before, and none now: those have their first places, the rest is sent."""
        left = [position for position in range(batch.count) if position not in known]
        shares = [[position] for position in known] + ([left] if left else [])
        made = await self._packing.parts(batch, shares)
        self._alone.remove(batch)
        for part, offset in zip(made, known.values(), strict=False):
            self._confirm(part, Produced(offset, -1, -1))
        if left:
            self._alone.append(made[-1])
            await self._settle_one(made[-1], None)

    async def _see_through(self, batch: ProducerBatch, outcome: Produced | MillstreamError | None) -> Produced:
        """Store the batch, once. `outcome` is what its first attempt brought, if there was one.

        OutcomeUnknownError when the deadline comes first and the batch may be there; any other error means it is not.
        What the broker would not know again, having neither numbers nor ids, is not sent again when in doubt.
        """
        deadline: Deadline = batch.chunk.deadline
        if self._is_stopped:
            text = f"{self.where}: nothing was sent; a message before it was not stored"
            raise MillstreamError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text)
        if outcome is None and deadline.is_over:
            text = f"{self.where}: nothing was sent; the time was over before its turn came"
            raise MillstreamError(ErrorCode.REQUEST_TIMED_OUT, text)
        attempts = Attempts(self._entropy, deadline)
        if isinstance(outcome, MillstreamError):
            _note(batch, outcome)
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
                is_known = is_numbered or (batch.ids is not None and self._route.keeps_ids)
                again = (is_known or not batch.in_doubt) and await attempts.again(error)
            if not again:
                account = attempts.account(error)
                if batch.in_doubt and not isinstance(error, KnownIdsError):
                    raise OutcomeUnknownError(self.where, account, unanswered=batch.unanswered) from error
                if account is not error:
                    raise account from error
                raise error

    async def _attempt(self, batch: ProducerBatch, deadline: Deadline) -> Produced | MillstreamError:
        try:
            await self._packing.add_ids(batch)
            if batch.chunk.options.acks != ALL or has_ids(batch):
                number(batch, NOBODY, -1)
            elif not batch.in_doubt:
                if self._identity is None:
                    self._identity = await self._identities.current(deadline)
                    self._next_sequence = 0
                    self._is_proven = False
                number(batch, self._identity, self._next_sequence)
            if batch.ids is not None and batch.count > IDS_MAX:
                text = f"{self.where}: {batch.count} messages with ids of their own are too many for a batch"
                raise MillstreamError(ErrorCode.MESSAGE_TOO_LARGE, text)
            connection = await self._route.find(deadline)
        except MillstreamError as error:
            return error
        batch.was_sent = True
        try:
            return await self._route.send(connection, batch, deadline)
        except MillstreamError as error:
            _note(batch, error)
            return error

    async def _renumber(self, batch: ProducerBatch, attempts: Attempts) -> bool:
        """The broker has not stored it and did not expect its number: it gets another.

        A gap is ours where a batch before it was refused. Otherwise the broker does not know our identity any more.
        """
        is_ours = batch.identity == self._identity and batch.base_sequence != self._next_sequence
        if is_ours or batch.identity != self._identity:
            return True
        self._retire(batch.identity)
        return await attempts.pause()

    def _confirm(self, batch: ProducerBatch, produced: Produced) -> None:
        if batch.identity is not None and batch.identity == self._identity:
            self._next_sequence = (batch.base_sequence + batch.count) % SEQUENCE_MODULUS
            self._is_proven = True
        batch.base_offset = produced.base_offset
        batch.append_time_ms = produced.log_append_time_ms
        self._settled(batch, None)

    def _fail(self, batch: ProducerBatch, error: MillstreamError) -> None:
        self._is_stopped = self._is_stopped or batch.chunk.options.in_order
        self._settled(batch, error)

    def _retire(self, identity: ProducerIdentity | None) -> None:
        """No new batch of this partition goes under this identity; other partitions keep theirs."""
        if identity is None or identity is NOBODY:
            return
        self._identities.retire(identity)
        if identity == self._identity:
            self._identity = None


def _note(batch: ProducerBatch, error: MillstreamError) -> None:
    """Remember what an attempt that was sent leaves open."""
    batch.in_doubt = batch.in_doubt or perhaps_stored(error)
    batch.unanswered = batch.unanswered or isinstance(error, ConnectionLostError)


def _outcome(answer: Answer) -> Produced | MillstreamError:
    error = answer.exception()
    if error is None:
        return answer.result()
    if isinstance(error, MillstreamError):
        return error
    raise error
