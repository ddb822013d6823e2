"""Defines what a shard requires of a state machine and of the service that creates it.

A machine needs no snapshot as long as compaction keeps its log short. A machine that needs a snapshot writes the
snapshot as records, in one step or several. Replay begins at the log start. So the last step of a snapshot sets
`Effects.trim_below` to the offset of the first one, and the shard trims the log once the snapshot is durable.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from millstream.coordination.effects import Answer, Effects, LogRecord, Notice, Now, Token
from millstream.model.errors import ErrorCode
from millstream.model.ids import Offset

Command_contra = TypeVar("Command_contra", contravariant=True)


class Deadlines(Protocol):
    """Reports when a machine needs its next tick (monotonic clock)."""

    @property
    def next_deadline_ms(self) -> int | None:
        """Time of the next tick; None if no tick is needed."""
        ...

    def may_be_due_before(self, at_ms: int) -> bool:
        """True if the next tick may be due before `at_ms`.

        Cheaper than `next_deadline_ms`, but the result may be True although no tick is due by then.
        """
        ...


class StateMachine(Deadlines, Protocol[Command_contra, Answer, Notice]):
    """The state that one log describes. A machine is pure: it does no I/O, and gets the time as an argument.

    Replaying every record that the machine has put into effects, in order, must give the same durable state. A machine
    whose records were not appended is discarded. After a crash, replay may end within a step that is larger than one
    batch (see `Effects`).
    """

    def replay(self, record: LogRecord) -> None:
        """Applies one record of the log. Raises MillstreamError if the record cannot be decoded; the shard then skips
        it."""
        ...

    def loading(self, now: Callable[[], Now], effects: Effects[Answer, Notice]) -> Iterator[None]:
        """Completes the loading after the replay, in slices; other work runs between two slices. Called once."""
        ...

    def handle(self, command: Command_contra, token: Token, now: Now, effects: Effects[Answer, Notice]) -> None:
        """Executes a command.

        The answer to `token` is added exactly once: to `effects`, or to the effects of a later call.
        """
        ...

    def tick(self, now: Now, effects: Effects[Answer, Notice]) -> None:
        """Does the work that is due now. Long work continues in later ticks."""
        ...


class ShardHooks(Protocol[Command_contra, Answer, Notice]):
    """Connects one shard to the service whose state it keeps."""

    def new_machine(self) -> StateMachine[Command_contra, Answer, Notice]:
        """Returns an empty machine. The shard calls this before each replay of the log."""
        ...

    def failed(self, command: Command_contra, error: ErrorCode, detail: str = "") -> Answer:
        """Returns the answer to `command` that reports `error`."""
        ...

    def not_written(self, command: Command_contra, error: ErrorCode) -> Answer:
        """Returns the answer to `command` after the log failed to store records with `error`."""
        ...

    def replayed(self, record: LogRecord, offset: int) -> None:
        """Called after the machine has applied this record of the log."""
        ...

    def appended(self, records: Sequence[LogRecord], base_offset: Offset) -> None:
        """Called after these records of the machine were appended; they may not be durable yet."""
        ...

    def answered(self, command: Command_contra, answer: Answer) -> None:
        """Called after an answer of the machine was sent. Everything that the answer depends on is durable."""
        ...

    def notify(self, notice: Notice) -> None:
        """Delivers a notice of the machine. Everything that the notice depends on is durable."""
        ...
