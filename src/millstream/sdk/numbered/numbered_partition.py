"""Stores numbered rows of one partition once and in order, even if other writers store the same rows.

The broker stores the epoch and the number of the last row for each writer and partition. A batch is therefore sent
without a check. The broker refuses it if its rows are already stored, or if earlier rows are missing. Only then the
writer requests the number of its last stored row. Invariants:

- `stored` rows of this epoch are acknowledged, by the answer to a batch or by the broker's state of the writer. The
  number never decreases: a broker with a lower number has lost the writer's state. That is an error, because rows would
  be stored twice otherwise.
- The waiting rows are consecutive, and the number of the first one is at most `stored`.
- Several batches are in flight on one connection, which keeps their order. After an error nothing is sent until all
  batches in flight are answered, or lost with their connection.
- A higher epoch of the same writer means that this epoch is complete: none of its rows is missing.
- If a broker assigned the writer's producer id, the first batch is sent alone, because a broker that does not know the
  id accepts any number. A producer id derived from a name must begin at number 0.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.limits import FIRST_SELF_NAMED_PRODUCER
from millstream.model.names import TopicPartition
from millstream.sdk import requests
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.connection import BrokerConnection
from millstream.sdk.connection.retry_policy import Attempts, Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.feed.leader_call import ask_partitions
from millstream.sdk.numbered.options import NumberedOptions
from millstream.sdk.numbered.row_packing import Numbers, Packed, Packer
from millstream.sdk.producing.failures import TOO_LARGE
from millstream.sdk.producing.options import ALL
from millstream.sdk.producing.partition_queue import IN_FLIGHT_MAX
from millstream.sdk.responses import Produced

_OUT_OF_STEP = frozenset(
    (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    )
)

Answer = asyncio.Future[Produced | MillstreamError]


class NumberedPartition:
    """Queues and sends the rows of one partition. `changed` is called when rows are stored or have failed."""

    def __init__(
        self,
        where: TopicPartition,
        caller: RetryingCaller,
        packer: Packer,
        options: NumberedOptions,
        changed: Callable[[], None],
    ) -> None:
        self.where = where
        self.next_number = 0
        """The number of the next row of this partition."""
        self.error: Exception | None = None
        self._identity = packer.identity
        self._caller = caller
        self._cluster = caller.cluster
        self._packer = packer
        self._options = options
        self._changed = changed
        self._stored = 0
        self._is_over = False
        self._waiting: deque[Packed] = deque()
        self._wake = asyncio.Event()
        self._attempts: Attempts | None = None
        self._leader: Address | None = None
        """The broker that got the last batches."""
        self._task: asyncio.Task[None] | None = None

    @property
    def numbers(self) -> Numbers:
        """The numbers that are needed to encode the next rows."""
        return Numbers(self.next_number, 2**31 if self._is_over else self._stored)

    @property
    def held_bytes(self) -> int:
        return sum(len(packed.encoded) for packed in self._waiting)

    @property
    def is_idle(self) -> bool:
        return not self._waiting

    @property
    def surplus(self) -> int:
        """Number of rows that the broker has stored beyond those that this writer got."""
        return max(0, self._stored - self.next_number)

    def add(self, packed: Packed) -> None:
        """Queue a batch, unless its rows are known to be stored."""
        if self._is_over or packed.end <= self._stored:
            return
        assert not self._waiting or packed.first == self._waiting[-1].end, "the waiting rows are consecutive"
        self._waiting.append(packed)
        self._wake.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    def cancel(self) -> None:
        """Stop sending."""
        if self._task is not None:
            self._task.cancel()

    async def _work(self) -> None:
        try:
            while self._waiting:
                try:
                    await self._send()
                except MillstreamError as error:
                    await self._recover(error)
        except Exception as error:
            self.error = error
        finally:
            self._task = None
            self._changed()

    # Sending, without errors.

    async def _send(self) -> None:
        """Send waiting batches until there are none; raises the first error after all batches are answered."""
        deadline = Deadline(self._options.timeout_s)
        self._leader = await self._cluster.leader(*self.where, deadline)
        connection = await self._cluster.to(self._leader, deadline)
        in_flight: deque[Answer] = deque()
        try:
            while self._waiting:
                await self._fill(connection, in_flight)
                await self._wake.wait()
                self._wake.clear()
                while in_flight and in_flight[0].done():
                    outcome = in_flight.popleft().result()
                    if isinstance(outcome, MillstreamError):
                        raise outcome
                    self._advance(self._waiting[0].end)
        except MillstreamError:
            if in_flight:
                await asyncio.wait(in_flight)
            for answer in in_flight:
                answer.exception()  # Marks it as retrieved; the broker's state is requested again.
            raise

    async def _fill(self, connection: BrokerConnection, in_flight: deque[Answer]) -> None:
        is_alone = not self._stored and self._identity.producer_id < FIRST_SELF_NAMED_PRODUCER
        while len(in_flight) < min(1 if is_alone else IN_FLIGHT_MAX, len(self._waiting)):
            while connection.room is not None:
                await asyncio.shield(connection.room)
            deadline = Deadline(self._options.timeout_s)
            batch = self._waiting[len(in_flight)].encoded
            timeout_ms = self._cluster.broker_timeout_ms(deadline)
            request = requests.produce(self.where, batch, acks=ALL, timeout_ms=timeout_ms)
            answer = connection.post(request, self._cluster.timeout_s(deadline))
            answer.add_done_callback(lambda _: self._wake.set())
            in_flight.append(answer)

    def _advance(self, stored: int) -> None:
        """Record that `stored` rows are stored, and drop the batches that they cover."""
        if stored > self._stored:
            self._stored = stored
            self._attempts = None
        while self._waiting and self._waiting[0].end <= self._stored:
            self._waiting.popleft()
        assert not self._waiting or self._waiting[0].first <= self._stored, "no waiting row was skipped"
        self._changed()

    # Recovery after an error.

    async def _recover(self, error: MillstreamError) -> None:
        """Handle an error so that sending can continue; raises permanent errors."""
        self._cluster.leader_failed(self.where, str(self._leader), error)
        first = self._waiting[0]
        if error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
            self._end()
        elif error.code in _OUT_OF_STEP:
            await self._catch_up(error)
        elif error.code in TOO_LARGE and first.rows > 1:
            self._replace_first(await self._caller.workers.run(partial(self._packer.halves, first)))
        elif not await self._tries_again(error):
            raise self._trying().root_cause(error)

    async def _catch_up(self, error: MillstreamError) -> None:
        """Request the number of the last stored row, and skip the stored rows."""
        before = self._stored
        deadline = Deadline(self._options.timeout_s)
        request = partial(requests.producer_state, self._identity.producer_id)
        found = (await ask_partitions(self._caller, {self.where: 0}, request, deadline))[self.where]
        if found is not None and found.epoch > self._identity.epoch:
            self._end()
            return
        stored = 0 if found is None or found.epoch < self._identity.epoch else found.last_sequence + 1
        if stored < before:
            text = f"{self.where}: {before} rows were stored, but the broker knows only {stored}"
            raise MillstreamError(ErrorCode.UNKNOWN_PRODUCER_ID, f"{text}; it has lost the writer's state")
        if stored <= self._waiting[0].first == before and not await self._trying().pause():
            raise error
        self._advance(stored)
        if self._waiting and self._waiting[0].first < stored:
            rest_of = partial(self._packer.rest_of, self._waiting[0], stored)
            self._replace_first(await self._caller.workers.run(rest_of))

    def _end(self) -> None:
        self._is_over = True
        self._waiting.clear()
        self._changed()

    def _replace_first(self, made: list[Packed]) -> None:
        self._waiting.popleft()
        self._waiting.extendleft(reversed(made))

    async def _tries_again(self, error: MillstreamError) -> bool:
        """True if the rows are sent again: at once to a newer leader, or after a backoff."""
        attempts = self._trying()
        return attempts.follows(error, self._cluster.leader_epoch(self.where)) or await attempts.again(error)

    def _trying(self) -> Attempts:
        """Return the attempts since rows were last stored."""
        if self._attempts is None:
            self._attempts = Attempts(self._caller.entropy, Deadline(self._options.timeout_s))
        return self._attempts
