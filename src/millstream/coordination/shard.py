"""Runs one state machine whose state is kept in the log of one partition.

Guarantees: the records of each step are appended in order, before the next step runs. An answer is sent when all
records that were appended before it are durable, unless the machine declares that no crash can invalidate the answer.
The notices of a step are sent before its answers. Each command is answered exactly once.

Invariants: only the shard writes the partition. It has one machine at a time, which has applied the whole log.

When an append or a flush fails, the machine contains state that the log lacks. The shard then discards the machine and
loads a new one from the log, as after a start. Callers that wait for the machine get an error and retry. The error does
not reveal another caller's command. Answers that only wait for a flush are still sent when that flush succeeds.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Generic

from millstream.coordination.effects import NO_TOKEN, Answer, Effects, LogRecord, Notice, Now, Token
from millstream.coordination.failure_answers import FailureAnswers
from millstream.coordination.loading import replay_log
from millstream.coordination.log_trimming import LogTrimming
from millstream.coordination.record_batches import encode, split
from millstream.coordination.reply_queue import Command, ReplyQueue
from millstream.coordination.state_machine import ShardHooks, StateMachine
from millstream.coordination.tick_timer import TickTimer
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
from millstream.model.waiters import Cancel
from millstream.partition.append_result import AppendResult
from millstream.partition.leadership import Leadership
from millstream.partition.watermark import Acknowledgement
from millstream.records.header import CorruptBatch
from millstream.seams.clock import Clock
from millstream.seams.workers import Workers

RETRY_FIRST_S = 0.05
RETRY_MAX_S = 5.0
"""The backoff before the state is loaded again: initially, and at most."""

_UNREADABLE = (MillstreamError, CorruptBatch, OSError)
"""Exceptions that occur when a log cannot be read."""

_log = logging.getLogger(__name__)


def no_cancel() -> None:
    """Does nothing: the cancel function of a command that has already been answered."""


class Shard(Generic[Command, Answer, Notice]):
    """The runtime of one machine. `open` comes before the first command and `close` after the last one. Shards that
    share a `turn` load in turns."""

    def __init__(
        self,
        partition: Leadership,
        hooks: ShardHooks[Command, Answer, Notice],
        *,
        clock: Clock,
        workers: Workers,
        turn: asyncio.Lock,
    ) -> None:
        self.partition = partition
        self.hooks = hooks
        self._clock = clock
        self._workers = workers
        self._turn = turn
        self._machine: StateMachine[Command, Answer, Notice] | None = None
        self._incarnation = 0
        self._truncations = partition.log.truncations
        self._refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._disk_error: ErrorCode | None = None
        """The disk error that discarded the last machine, until the next one is loaded."""
        self._trimming = LogTrimming(partition)
        self._replies = ReplyQueue(hooks, self._trimming.trim)
        self._failures = FailureAnswers(hooks)
        self._timer = TickTimer(clock, self._tick)
        self._told_while_loading: list[Command] = []
        self._flushing: Acknowledgement | None = None
        self._loading: asyncio.Task[None] | None = None
        self._retry_s = RETRY_FIRST_S
        self._is_closed = False

    @property
    def machine(self) -> StateMachine[Command, Answer, Notice] | None:
        """The state, for reading only; None while it is loading and after `close`."""
        return self._machine

    @property
    def incarnation(self) -> int:
        """Number that changes whenever a machine is discarded."""
        return self._incarnation

    def open(self) -> None:
        """Loads the state. An empty log is loaded when this method returns, so a new partition accepts commands
        immediately."""
        log = self.partition.log
        if log.end_offset > log.start_offset or self.partition.is_suspended:
            self._load_soon(0)
            return
        self._truncations = self.partition.log.truncations
        machine = self.hooks.new_machine()
        effects: Effects[Answer, Notice] = Effects(log.end_offset)
        for _ in machine.loading(self._now, effects):
            pass
        self._loaded(machine, effects)

    async def close(self) -> None:
        """Closes as `begin_close` does, and waits for the flush that the other answers depend on."""
        self.begin_close()
        await self.settled()

    def begin_close(self) -> None:
        """Answers the commands that wait for the machine with NOT_COORDINATOR. Nothing is written after this. Answers
        that only wait for a flush are sent when that flush has ended."""
        self._is_closed = True
        self._machine = None
        self._disk_error = None
        self._refusal = ErrorCode.NOT_COORDINATOR
        self._timer.stop()
        if self._loading is not None:
            self._loading.cancel()
        self._replies.fail_pending(self._failures.moved)

    async def settled(self) -> None:
        """Waits until everything appended so far is durable or has failed, and no trim of the log runs."""
        if self._flushing is not None:
            with suppress(MillstreamError):
                await self._flushing
        await self._trimming.settled()

    # Commands.

    def ask(self, command: Command, reply: Callable[[Answer], None]) -> Cancel:
        """Executes a command. `reply` gets the answer once, perhaps before this method returns. The returned function
        answers the command with NOT_COORDINATOR, unless the machine has already answered it."""
        machine = self._machine
        if machine is None:
            if self._disk_error is None:
                reply(self.hooks.failed(command, self._refusal))
            else:
                reply(self._failures.not_written(command, self._disk_error))
            return no_cancel
        token = self._replies.register(command, reply)
        self._step(partial(machine.handle, command, token), token)
        return partial(self._replies.fail, token, self._failures.moved)

    def tell(self, command: Command) -> None:
        """Executes a command that has no answer. While the state is loading, the command is kept until loading has
        finished."""
        if self._machine is not None:
            self._step(partial(self._machine.handle, command, NO_TOKEN))
        elif not self._is_closed:
            self._told_while_loading.append(command)

    def _tick(self) -> None:
        if self._machine is not None:
            self._step(self._machine.tick)

    def _step(self, act: Callable[[Now, Effects[Answer, Notice]], None], token: Token = NO_TOKEN) -> None:
        effects: Effects[Answer, Notice] = Effects(self.partition.log.end_offset)
        now = self._now()
        try:
            act(now, effects)
        except Exception:
            self._fault(token)
        else:
            self._carry_out(effects, now, token)

    def _carry_out(self, effects: Effects[Answer, Notice], now: Now, token: Token = NO_TOKEN) -> None:
        if effects.records and not self._append(effects, now, token):
            return
        self._replies.put(effects)
        if self._machine is not None:
            self._timer.set(self._machine)

    # The log.

    def _append(self, effects: Effects[Answer, Notice], now: Now, token: Token) -> bool:
        """Appends the records of one step in one write. Returns False if that failed: none of the records is in the
        log, and the machine is discarded."""
        partition, records = self.partition, effects.records
        try:
            if partition.log.truncations != self._truncations:
                raise MillstreamError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {partition.topic}-{partition.number} was truncated"
                )
            batches = [encode(part, now.wall_ms) for part in split(records, partition.settings.max_message_bytes)]
            result = partition.append(batches[0]) if len(batches) == 1 else partition.append_run(batches)
            base_offset = Offset(result.base_offset)
            assert base_offset == effects.base_offset, "only the shard writes the partition"
            self.hooks.appended(records, base_offset)
            self._appended(result, Offset(base_offset + len(records)))
        except MillstreamError as error:
            _log.warning("coordinator append failed, state will be reloaded", extra=self._fields(error=str(error)))
            self._replies.fail(token, partial(self._failures.not_written, code=error.code))
            self._discard(error)
            return False
        except Exception:
            self._fault(token)
            return False
        return True

    def _fields(self, **fields: object) -> dict[str, object]:
        """Returns the fields of a log line, which name the partition."""
        return {"topic": self.partition.topic, "partition": self.partition.number, **fields}

    def _appended(self, result: AppendResult, end_offset: Offset) -> None:
        self._replies.appended(end_offset)
        if result.acknowledgement is None:
            self._replies.durable(end_offset)
        else:
            self._flushing = result.acknowledgement
            result.acknowledgement.then(partial(self._flushed, self._incarnation, end_offset))

    def _flushed(self, incarnation: int, end_offset: Offset, flush: Acknowledgement) -> None:
        """Handles the end of a flush. Its machine may have been discarded, but no other one is loaded yet."""
        if flush.error is None:
            if incarnation == self._incarnation:
                self._retry_s = RETRY_FIRST_S
            self._replies.durable(end_offset)
            return
        _log.warning("coordinator flush failed, state will be reloaded", extra=self._fields(error=str(flush.error)))
        if incarnation == self._incarnation:
            self._discard(flush.error)
        self._replies.fail_held(partial(self._failures.outdated, error=flush.error))

    # Loading.

    def _fault(self, token: Token) -> None:
        """Discards a machine that raised an unexpected exception. Its state is undefined, but the log is not
        affected."""
        _log.exception("coordinator state machine failed, state will be reloaded", extra=self._fields())
        self._replies.fail(token, partial(self.hooks.failed, error=ErrorCode.UNKNOWN_SERVER_ERROR))
        self._discard()

    def _discard(self, error: BaseException | None = None) -> None:
        """Discards the machine, and fails the commands that wait for it. Loads another one after a backoff, unless this
        broker no longer leads the partition."""
        self._machine = None
        self._incarnation += 1
        self._timer.stop()
        if self.partition.is_closed:
            self._refusal = ErrorCode.NOT_COORDINATOR
        elif not self._is_closed:
            self._refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            if isinstance(error, MillstreamError) and error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                self._disk_error = error.code
            self._load_soon(self._retry_s)
            self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)
        self._replies.fail_pending(partial(self._failures.outdated, error=error))

    def _load_soon(self, delay_s: float) -> None:
        self._loading = asyncio.get_running_loop().create_task(self._load(delay_s))

    async def _load(self, delay_s: float) -> None:
        while True:
            await asyncio.sleep(delay_s)
            await self.settled()
            try:
                machine, effects = await self._replayed()
            except Exception as error:
                # Unexpected exceptions are logged with a traceback; otherwise the retries would hide the defect.
                unexpected = None if isinstance(error, _UNREADABLE) else error
                extra = self._fields(error=str(error))
                _log.warning("coordinator loading failed, will be retried", extra=extra, exc_info=unexpected)
                delay_s = min(max(2 * delay_s, RETRY_FIRST_S), RETRY_MAX_S)
            else:
                self._loading = None
                self._loaded(machine, effects)
                return

    async def _replayed(self) -> tuple[StateMachine[Command, Answer, Notice], Effects[Answer, Notice]]:
        self._truncations = self.partition.log.truncations
        machine = self.hooks.new_machine()

        def replay(record: LogRecord, offset: int) -> None:
            try:
                machine.replay(record)
                self.hooks.replayed(record, offset)
            except MillstreamError as error:
                _log.error(
                    "undecodable coordinator record skipped", extra=self._fields(offset=offset, error=str(error))
                )

        await replay_log(self.partition, self._workers, replay, self._turn)
        effects: Effects[Answer, Notice] = Effects(self.partition.log.end_offset)
        async with self._turn:
            for _ in machine.loading(self._now, effects):
                await asyncio.sleep(0)
        return machine, effects

    def _loaded(self, machine: StateMachine[Command, Answer, Notice], effects: Effects[Answer, Notice]) -> None:
        assert self._machine is None, "a shard has one machine at a time"
        assert not self._is_closed, "close stops the loading"
        self._replies.loaded(Offset(self.partition.log.end_offset))
        self._machine = machine
        self._disk_error = None
        self._carry_out(effects, self._now())
        told, self._told_while_loading = self._told_while_loading, []
        for command in told:
            self.tell(command)

    def _now(self) -> Now:
        return Now(int(self._clock.monotonic_s() * 1000), self._clock.wall_ms())
