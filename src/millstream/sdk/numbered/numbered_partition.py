"""Numbered rows on their way to one partition, each stored once and in order, whoever else writes them too.

The broker keeps, for each writer and partition, the epoch and the number of the last row. So a batch can be sent
without asking: if its rows are there already, or some before it are not, the broker refuses it, and only then is it
asked how far the writer is. Invariants:

- `stored` rows of this epoch are acknowledged, by the answer to a batch or by what the broker said of the writer, which
  speaks of nothing that is not. It never goes back: a broker that knows of fewer has forgotten the writer, which is an
  error, since rows would be doubled otherwise.
- The rows that wait follow one another, the first of them has number `stored` or less.
- Some batches are under way at once, on one connection, which keeps their order. After an answer that is not good
  nothing is sent before all those under way are answered, or lost with their connection.
- A later epoch of the same writer means that this one was complete: nothing of it is missing.
- Of a writer whose id a broker gave, the first batch goes alone: to a broker that does not know it yet, any number
  would be the first. One that names itself is held to begin at 0.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.limits import FIRST_SELF_NAMED_PRODUCER
from millstream.model.names import TopicPartition
from millstream.sdk import requests
from millstream.sdk.connection.connection import BrokerConnection
from millstream.sdk.connection.retry_policy import Attempts, Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
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
    """One partition's. `changed` is called when something was stored, or failed."""

    def __init__(
        self,
        where: TopicPartition,
        asking: RetryingCaller,
        packer: Packer,
        options: NumberedOptions,
        changed: Callable[[], None],
    ) -> None:
        self.where = where
        self.next_number = 0
        """Of the next row for this partition."""
        self.error: Exception | None = None
        self._identity = packer.identity
        self._asking = asking
        self._cluster = asking.cluster
        self._packer = packer
        self._options = options
        self._changed = changed
        self._stored = 0
        self._is_over = False
        self._waiting: deque[Packed] = deque()
        self._news = asyncio.Event()
        self._attempts: Attempts | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def numbers(self) -> Numbers:
        """For whoever packs the next rows."""
        return Numbers(self.next_number, 2**31 if self._is_over else self._stored)

    @property
    def held_bytes(self) -> int:
        return sum(len(packed.encoded) for packed in self._waiting)

    @property
    def is_idle(self) -> bool:
        return not self._waiting

    @property
    def surplus(self) -> int:
        """How many more rows the broker has of this epoch than this writer was given."""
        return max(0, self._stored - self.next_number)

    def add(self, packed: Packed) -> None:
        """Send a batch behind the others, unless its rows have turned out to be stored."""
        if self._is_over or packed.end <= self._stored:
            return
        self._waiting.append(packed)
        self._news.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    def cancel(self) -> None:
        """Send nothing more."""
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

    # While all goes well.

    async def _send(self) -> None:
        """Send what waits until nothing does; raises the first answer that is not good, when no other is to come."""
        deadline = Deadline(self._options.timeout_s)
        address = await self._cluster.leader(*self.where, deadline)
        connection = await self._cluster.to(address, deadline)
        flying: deque[Answer] = deque()
        try:
            while self._waiting:
                await self._fill(connection, flying)
                await self._news.wait()
                self._news.clear()
                while flying and flying[0].done():
                    outcome = flying.popleft().result()
                    if isinstance(outcome, MillstreamError):
                        raise outcome
                    self._advance(self._waiting[0].end)
        except MillstreamError:
            if flying:
                await asyncio.wait(flying)
            for answer in flying:
                answer.exception()  # Marks it as seen; what it says is asked again.
            raise

    async def _fill(self, connection: BrokerConnection, flying: deque[Answer]) -> None:
        is_alone = not self._stored and self._identity.producer_id < FIRST_SELF_NAMED_PRODUCER
        while len(flying) < min(1 if is_alone else IN_FLIGHT_MAX, len(self._waiting)):
            while connection.room is not None:
                await asyncio.shield(connection.room)
            deadline = Deadline(self._options.timeout_s)
            batch = self._waiting[len(flying)].encoded
            timeout_ms = self._cluster.broker_timeout_ms(deadline)
            request = requests.produce(self.where, batch, acks=ALL, timeout_ms=timeout_ms)
            answer = connection.post(request, self._cluster.timeout_s(deadline))
            answer.add_done_callback(lambda _: self._news.set())
            flying.append(answer)

    def _advance(self, stored: int) -> None:
        """So many rows are stored."""
        if stored > self._stored:
            self._stored = stored
            self._attempts = None
        while self._waiting and self._waiting[0].end <= self._stored:
            self._waiting.popleft()
        self._changed()

    # After an answer that was not good.

    async def _recover(self, error: MillstreamError) -> None:
        """Make it so that sending can go on; raises what cannot be helped."""
        self._cluster.forget(self.where.topic)
        first = self._waiting[0]
        if error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
            self._end()
        elif error.code in _OUT_OF_STEP:
            await self._catch_up(error)
        elif error.code in TOO_LARGE and first.rows > 1:
            self._replace_first(await self._asking.workers.run(partial(self._packer.halves, first)))
        elif not await self._trying().again(error):
            raise self._trying().account(error)

    async def _catch_up(self, error: MillstreamError) -> None:
        """Ask how far the writer is, and leave out what is there."""
        before = self._stored
        deadline = Deadline(self._options.timeout_s)
        request = partial(requests.producer_state, self._identity.producer_id)
        found = (await self._asking.leaders({self.where: 0}, request, deadline))[self.where]
        if found is not None and found.epoch > self._identity.epoch:
            self._end()
            return
        stored = 0 if found is None or found.epoch < self._identity.epoch else found.last_sequence + 1
        if stored < before:
            text = f"{self.where}: {before} rows were stored, of which the broker knows {stored}"
            raise MillstreamError(ErrorCode.UNKNOWN_PRODUCER_ID, f"{text}; it has forgotten the writer, or is another")
        if stored <= self._waiting[0].first == before and not await self._trying().pause():
            raise error
        self._advance(stored)
        if self._waiting and self._waiting[0].first < stored:
            behind = partial(self._packer.behind, self._waiting[0], stored)
            self._replace_first(await self._asking.workers.run(behind))

    def _end(self) -> None:
        self._is_over = True
        self._waiting.clear()
        self._changed()

    def _replace_first(self, made: list[Packed]) -> None:
        self._waiting.popleft()
        self._waiting.extendleft(reversed(made))

    def _trying(self) -> Attempts:
        """Attempts since something was last stored."""
        if self._attempts is None:
            self._attempts = Attempts(self._asking.entropy, Deadline(self._options.timeout_s))
        return self._attempts
