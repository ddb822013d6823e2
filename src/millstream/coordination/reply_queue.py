"""Holds the notices, answers and trims of a machine until the records that they depend on are durable.

Invariants: each command is answered exactly once. Held entries leave in the order of their steps, and the notices of a
step leave before its answers. `durable_offset <= appended_offset`, and the offset that a held entry depends on is
between the two.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from millstream.coordination.effects import Answer, Effects, Notice, Token
from millstream.coordination.state_machine import ShardHooks
from millstream.model.ids import Offset

Command = TypeVar("Command")


class PendingCommand(NamedTuple, Generic[Command, Answer]):
    """A command that has not been answered."""

    command: Command
    reply: Callable[[Answer], None]


class _HeldAnswer(NamedTuple, Generic[Command, Answer]):
    rests_on_offset: Offset
    """The answer is sent when the log is durable up to this offset."""
    pending: PendingCommand[Command, Answer]
    answer: Answer


class _HeldNotice(NamedTuple, Generic[Notice]):
    rests_on_offset: Offset
    notice: Notice


class _HeldTrim(NamedTuple):
    rests_on_offset: Offset
    below: Offset


class ReplyQueue(Generic[Command, Answer, Notice]):
    """The queue of one shard, which reports every append and every flush to it."""

    def __init__(self, hooks: ShardHooks[Command, Answer, Notice], trim: Callable[[Offset], None]) -> None:
        """`trim` is called with an offset once no replay needs the records below it."""
        self._hooks = hooks
        self._trim = trim
        self._pending: dict[Token, PendingCommand[Command, Answer]] = {}
        self._held: deque[_HeldAnswer[Command, Answer] | _HeldNotice[Notice] | _HeldTrim] = deque()
        self._next_token = 0
        self._appended_offset = Offset(0)
        self._durable_offset = Offset(0)

    def register(self, command: Command, reply: Callable[[Answer], None]) -> Token:
        """Registers a command that expects an answer, and returns its token."""
        token = self._next_token
        self._next_token = token + 1
        self._pending[token] = PendingCommand(command, reply)
        return token

    def loaded(self, end_offset: Offset) -> None:
        """Records that a new machine has replayed the log up to its end, and that the log is durable up to there."""
        assert not self._held, "the log is replayed after all its flushes have finished"
        self._appended_offset = self._durable_offset = end_offset

    def appended(self, end_offset: Offset) -> None:
        """Records that the log ends at this offset after an append."""
        assert end_offset > self._appended_offset, "the log grows"
        self._appended_offset = end_offset

    def durable(self, end_offset: Offset) -> None:
        """Records that the log is durable up to this offset, and sends the held entries that depend on nothing after
        it."""
        assert self._durable_offset <= end_offset <= self._appended_offset, "only appended records become durable"
        self._durable_offset = end_offset
        held = self._held
        while held and held[0].rests_on_offset <= end_offset:
            entry = held.popleft()
            if isinstance(entry, _HeldNotice):
                _call(partial(self._hooks.notify, entry.notice), "a notice")
            elif isinstance(entry, _HeldTrim):
                self._trim(entry.below)
            else:
                self._send(entry.pending, entry.answer)

    def put(self, effects: Effects[Answer, Notice]) -> None:
        """Sends or holds the notices, answers and trims of a step, whose records have been appended."""
        offset = self._appended_offset
        leaves = offset <= self._durable_offset
        for notice in effects.notices:
            if leaves:
                _call(partial(self._hooks.notify, notice), "a notice")
            else:
                self._held.append(_HeldNotice(offset, notice))
        if effects.trim_below is not None:
            assert effects.trim_below <= offset, "a machine trims only records that it has written"
            if leaves:
                self._trim(effects.trim_below)
            else:
                self._held.append(_HeldTrim(offset, effects.trim_below))
        leaves = leaves or (effects.replies_at_once and not effects.records)
        for token, answer in effects.replies:
            pending = self._pending.pop(token, None)
            if pending is None:
                continue  # The caller has stopped waiting.
            if leaves:
                self._send(pending, answer)
            else:
                self._held.append(_HeldAnswer(offset, pending, answer))

    def fail(self, token: Token, answer: Callable[[Command], Answer]) -> None:
        """Answers one command with a failure. Ignores a token that is not pending."""
        pending = self._pending.pop(token, None)
        if pending is not None:
            _fail((pending,), answer)

    def fail_pending(self, answer: Callable[[Command], Answer]) -> None:
        """Answers every command that the machine has not answered yet with a failure."""
        pending, self._pending = self._pending, {}
        _fail(tuple(pending.values()), answer)

    def fail_held(self, answer: Callable[[Command], Answer]) -> None:
        """Replaces every held answer by a failure, and drops the held notices and trims."""
        held, self._held = self._held, deque()
        _fail([entry.pending for entry in held if isinstance(entry, _HeldAnswer)], answer)

    def _send(self, pending: PendingCommand[Command, Answer], answer: Answer) -> None:
        try:
            pending.reply(answer)
            self._hooks.answered(pending.command, answer)
        except Exception as error:
            _report(error, "an answer")


def _fail(pending: Sequence[PendingCommand[Command, Answer]], answer: Callable[[Command], Answer]) -> None:
    for command, reply in pending:
        _call(partial(reply, answer(command)), "an answer")


def _call(deliver: Callable[[], None], name: str) -> None:
    try:
        deliver()
    except Exception as error:
        _report(error, name)


def _report(error: Exception, name: str) -> None:
    # The step is complete and other callers wait: one failing receiver must not affect them.
    asyncio.get_running_loop().call_exception_handler(
        {"message": f"coordinator {name} could not be delivered", "exception": error}
    )
