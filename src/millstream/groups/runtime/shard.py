"""The groups of one partition of the internal topic: asked on the event loop, kept in the log, answered when durable.

Invariants: what the machine says has happened is in the log, in that order, or on its way into it; an answer leaves
when everything that the machine knew when it was given is durable (a classic heartbeat, which tells nothing that could
be lost, leaves at once). What is handed down to servers of partitions goes before the answers of the same step. Nobody
but the shard writes the partition. Each question is answered exactly once.

When the log does not take a write, or a flush fails, the machine knows what the log does not: it is thrown away, and
the state is loaded anew from what is really there, as after a start. Everybody who waits is told to come again; nobody
is told what is wrong with somebody else's question. Answers that only wait for a flush leave when it succeeds.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from millstream.groups.commands import Command, CommitOffsets, Heartbeat
from millstream.groups.consumer.records import GROUP
from millstream.groups.effects import Effects, GroupLogRecord, Now, Token
from millstream.groups.failures import failed, not_available, refused_by_log
from millstream.groups.iterators.iterator import IteratorNotice
from millstream.groups.machine import GroupMachine
from millstream.groups.records import GROUP_KEY, key_version
from millstream.groups.responses import OK, Answer, PartitionErrors
from millstream.groups.runtime.changed_groups import Changes
from millstream.groups.runtime.loading import replay_log
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.partition import Partition
from millstream.records.batch import encode_batch
from millstream.records.header import HEADER_BYTES, CorruptBatch
from millstream.seams.clock import Clock
from millstream.seams.workers import Workers
from millstream.storage.flush.flush_round import FlushRound

RETRY_FIRST_S = 0.05
RETRY_MOST_S = 5.0
"""How long after a failure the state is loaded again: at first, and at most."""

_RECORD_OVERHEAD_BYTES = 32
"""More than a record takes in a batch beside its key and its value."""

_GENERATION_KEYS = frozenset({GROUP_KEY, GROUP})
"""The versions of keys whose records say that a group has a new generation, or epoch."""

_UNREADABLE = (MillstreamError, CorruptBatch, OSError)
"""What may become of reading a log."""

Reply = Callable[[Answer], None]
HandDown = Callable[[IteratorNotice], None]
"""Tells the server of a partition what was issued of it; nothing comes back."""
Hurry = Callable[[], None]
"""Called when nobody will wait any longer: whoever waits for other members is answered now."""

_log = logging.getLogger(__name__)


class _Asked(NamedTuple):
    command: Command
    reply: Reply


class _Held(NamedTuple):
    """An answer that leaves when the append of this number is durable."""

    append: int
    asked: _Asked
    answer: Answer


class Shard:
    """Made for a partition that this broker leads; `open` before the first question, `close` after the last. Shards
    that have the same `turn` hold the event loop one after another while they load."""

    def __init__(
        self,
        partition: Partition,
        make_machine: Callable[[], GroupMachine],
        *,
        clock: Clock,
        workers: Workers,
        turn: asyncio.Lock,
        hand_down: HandDown,
    ) -> None:
        self.partition = partition
        self.changes = Changes()
        """What has changed since the catalog's tables were last written."""
        self.offsets_committed = 0
        self.rebalances = 0
        self._make_machine = make_machine
        self._clock = clock
        self._workers = workers
        self._turn = turn
        self._hand_down = hand_down
        self._machine: GroupMachine | None = None
        self._refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._asked: dict[Token, _Asked] = {}
        self._held: deque[_Held] = deque()
        self._told: deque[tuple[int, IteratorNotice]] = deque()
        """What is handed down when the append of this number is durable."""
        self._next_token = 0
        self._appends = 0
        self._durable_appends = 0
        self._flushing: FlushRound | None = None
        self._life = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._loading: asyncio.Task[None] | None = None
        self._deleted: dict[str, None] = {}
        """Topics that were deleted while there was no machine to be told."""
        self._retry_s = RETRY_FIRST_S
        self._is_closed = False

    @property
    def machine(self) -> GroupMachine | None:
        """The state; None while it is being loaded. Not to be changed by anybody else."""
        return self._machine

    @property
    def life(self) -> int:
        """Another number whenever the state was thrown away."""
        return self._life

    def open(self, projected_offset: int) -> None:
        """Load the state; the catalog's tables have what was before `projected_offset`. Of an empty log there is
        nothing to load, so that a new partition can be asked at once."""
        self.changes.begin(projected_offset)
        if self.partition.log.end_offset == self.partition.log.start_offset and not self.partition.is_suspended:
            self._begin(self._make_machine(), Effects())
        else:
            self._load_soon(0)

    async def close(self) -> None:
        """Tell whoever waits for other members to ask elsewhere, and let the answers leave that only wait for a flush.
        Nothing is written after this."""
        self._is_closed = True
        self._machine = None
        self._refusal = ErrorCode.NOT_COORDINATOR
        self._stop_timer()
        if self._loading is not None:
            self._loading.cancel()
        self._answer_all(self._take_asked(), lambda command: failed(command, ErrorCode.NOT_COORDINATOR))
        await self.settled()

    async def settled(self) -> None:
        """Wait until everything that was appended so far is durable, or has failed to be."""
        if self._flushing is not None:
            with suppress(MillstreamError):
                await self._flushing

    # Asking.

    def ask(self, command: Command, reply: Reply) -> Hurry:
        """Put a question; `reply` is called with the answer once, perhaps before this returns."""
        machine = self._machine
        if machine is None:
            reply(failed(command, self._refusal))
            return nobody_waits
        token = self._next_token
        self._next_token += 1
        self._asked[token] = _Asked(command, reply)
        self._run(lambda now: machine.handle(command, token, now), token, at_once=isinstance(command, Heartbeat))
        return partial(self._hurry, token)

    def topics_deleted(self, names: Sequence[str]) -> None:
        """These topics are gone, and so is what was committed for them. What is being loaded hears of it then: by that
        time they may have been made again."""
        machine = self._machine
        if machine is not None:
            self._run(lambda now: machine.topics_deleted(names, now))
        elif not self._is_closed:
            self._deleted.update(dict.fromkeys(names))

    def _hurry(self, token: Token) -> None:
        asked = self._asked.pop(token, None)
        if asked is not None:
            asked.reply(failed(asked.command, ErrorCode.NOT_COORDINATOR))

    def _run(self, step: Callable[[Now], Effects], token: Token | None = None, *, at_once: bool = False) -> None:
        """Let the machine do something, for the question of this token if it is for one."""
        try:
            effects = step(self._now())
        except Exception:
            self._fault(token)
            return
        if not effects.records or self._append(effects.records, token):
            self._answer(effects, at_once=at_once and not effects.records)
            self._set_timer()

    def _fault(self, token: Token | None) -> None:
        """In the machine, or in what it said: what it knows is worth nothing, what the log has is as good as before."""
        _log.exception("the state of groups failed unexpectedly", extra={"partition": str(self.partition)})
        self._refuse(token, lambda command: failed(command, ErrorCode.UNKNOWN_SERVER_ERROR))
        self._throw_away()

    # Writing.

    def _append(self, records: Sequence[GroupLogRecord], token: Token | None) -> bool:
        """Append as one batch, or as few as will do; False when the log refused, which everybody was told."""
        now_ms = self._clock.wall_ms()
        try:
            for part in _split(records, self.partition.settings.max_message_bytes):
                batch = encode_batch([r.value for r in part], keys=[r.key for r in part], timestamps=now_ms)
                appended = self.partition.append(memoryview(batch))
                self._appends += 1
                if appended.committed is None:
                    self._durable_appends = self._appends
                else:
                    self._flushing = appended.committed
                    appended.committed.then(partial(self._flushed, self._life, self._appends))
                for at, record in enumerate(part):
                    self.rebalances += record.value is not None and key_version(record.key) in _GENERATION_KEYS
                    self.changes.note(record, appended.base_offset + at)
        except MillstreamError as error:
            _log.warning("groups could not be written", extra={"partition": str(self.partition), "why": str(error)})
            self._refuse(token, partial(refused_by_log, error=error.code))
            self._throw_away()
            return False
        except Exception:
            self._fault(token)
            return False
        return True

    def _flushed(self, life: int, append: int, flushed: FlushRound) -> None:
        """An append of this life or, as long as nothing is loaded anew, of the one before."""
        error = flushed.error
        if error is not None:
            _log.warning("groups could not be flushed", extra={"partition": str(self.partition), "why": str(error)})
            held, self._held = self._held, deque()
            self._told.clear()
            if life == self._life:
                self._throw_away()
            self._answer_all([each.asked for each in held], not_available)
            return
        self._durable_appends = append
        if life == self._life:
            self._retry_s = RETRY_FIRST_S
        while self._told and self._told[0][0] <= append:
            self._hand_down(self._told.popleft()[1])
        while self._held and self._held[0].append <= append:
            _, asked, answer = self._held.popleft()
            self._leave(asked, answer)

    # Answering.

    def _answer(self, effects: Effects, *, at_once: bool) -> None:
        append = self._appends
        for told in effects.told:
            if append == self._durable_appends:
                self._hand_down(told)
            else:
                self._told.append((append, told))
        for token, answer in effects.replies:
            asked = self._asked.pop(token, None)
            if asked is None:
                continue  # Nobody waits any longer.
            if at_once or append == self._durable_appends:
                self._leave(asked, answer)
            else:
                self._held.append(_Held(append, asked, answer))

    def _leave(self, asked: _Asked, answer: Answer) -> None:
        command = asked.command
        if isinstance(command, CommitOffsets) and isinstance(answer, PartitionErrors) and answer.error is OK:
            self.offsets_committed += len(command.offsets) - len(answer.errors)
        _reply(asked, answer)

    def _take_asked(self) -> list[_Asked]:
        asked, self._asked = self._asked, {}
        return list(asked.values())

    def _answer_all(self, asked: Sequence[_Asked], answer: Callable[[Command], Answer]) -> None:
        for each in asked:
            _reply(each, answer(each.command))

    # Loading.

    def _refuse(self, token: Token | None, answer: Callable[[Command], Answer]) -> None:
        """Answer the one question that nothing came of."""
        asked = None if token is None else self._asked.pop(token, None)
        if asked is not None:
            _reply(asked, answer(asked.command))

    def _throw_away(self) -> None:
        """Forget the state, tell everybody so who waits for others, and load it again after a while."""
        self._machine = None
        self._life += 1
        self._refusal = ErrorCode.NOT_COORDINATOR if self._is_closed else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._stop_timer()
        if not self._is_closed:
            self._load_soon(self._retry_s)
            self._retry_s = min(2 * self._retry_s, RETRY_MOST_S)
        self._answer_all(self._take_asked(), not_available)

    def _load_soon(self, delay_s: float) -> None:
        self._loading = asyncio.get_running_loop().create_task(self._load(delay_s))

    async def _load(self, delay_s: float) -> None:
        while True:
            await asyncio.sleep(delay_s)
            await self.settled()
            try:
                machine, effects = await self._loaded()
            except Exception as error:
                # A fault in the machine too: the partition would otherwise be loading for ever, without a word.
                fault = None if isinstance(error, _UNREADABLE) else error
                why = {"partition": str(self.partition), "why": str(error)}
                _log.warning("the state of groups could not be loaded; trying again", extra=why, exc_info=fault)
                delay_s = min(max(2 * delay_s, RETRY_FIRST_S), RETRY_MOST_S)
            else:
                self._loading = None
                self._begin(machine, effects)
                return

    async def _loaded(self) -> tuple[GroupMachine, Effects]:
        machine = self._make_machine()

        def replay(record: GroupLogRecord, offset: int) -> None:
            try:
                machine.replay(record)
                self.changes.note(record, offset)
            except MillstreamError as error:
                why = {"partition": str(self.partition), "offset": offset, "why": error.detail}
                _log.error("a record of groups cannot be read and is passed over", extra=why)

        self.changes.reached = await replay_log(self.partition, self._workers, replay, self._turn)
        effects = Effects()
        async with self._turn:
            for _ in machine.loading(self._now, effects):
                await asyncio.sleep(0)
        return machine, effects

    def _begin(self, machine: GroupMachine, effects: Effects) -> None:
        self._durable_appends = self._appends
        self._machine = machine
        self._run(lambda now: effects)
        deleted, self._deleted = self._deleted, {}
        if gone := list(deleted | dict.fromkeys(machine.topics_gone())):
            self.topics_deleted(gone)

    # Time.

    def _now(self) -> Now:
        return Now(int(self._clock.monotonic_s() * 1000), self._clock.wall_ms())

    def _set_timer(self) -> None:
        """One timer, set again only when something is due earlier: a deadline that moved back is seen when it rings."""
        machine = self._machine
        if machine is None or (self._timer is not None and not machine.may_be_due_before(self._timer_ms)):
            return
        due_ms = machine.next_deadline_ms
        if due_ms is None or (self._timer is not None and self._timer_ms <= due_ms):
            return
        self._stop_timer()
        now_ms = int(self._clock.monotonic_s() * 1000)
        self._timer_ms = due_ms
        self._timer = asyncio.get_running_loop().call_later(max(1, due_ms - now_ms) / 1000, self._ring)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        machine = self._machine
        if machine is not None:
            self._run(machine.tick)


def _split(records: Sequence[GroupLogRecord], size_max: int) -> list[list[GroupLogRecord]]:
    """The records in as few batches as hold them; what cannot be made smaller is one of its own."""
    parts: list[list[GroupLogRecord]] = [[]]
    size = HEADER_BYTES
    for record in records:
        more = len(record.key) + len(record.value or b"") + _RECORD_OVERHEAD_BYTES
        if parts[-1] and size + more > size_max:
            parts.append([])
            size = HEADER_BYTES
        parts[-1].append(record)
        size += more
    return parts


def _reply(asked: _Asked, answer: Answer) -> None:
    try:
        asked.reply(answer)
    except Exception as error:
        # The state has moved on and others wait too: neither may suffer from a fault of one caller.
        asyncio.get_running_loop().call_exception_handler(
            {"message": "an answer of a group could not be given", "exception": error}
        )


def nobody_waits() -> None:
    """Hurries a question that was answered already."""
