"""Defines the input and output of a state machine whose state is kept in a log.

The machine is pure: it gets the time with each command, does no I/O, and returns everything to be done as `Effects`.
The shard appends the records, sends the answers and notices once the records are durable, and then trims the log.
"""

from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct, field

from millstream.model.ids import Offset

Answer = TypeVar("Answer")
Notice = TypeVar("Notice")

Token = int
"""Identifies a command that waits for its answer. The shard issues it, and the machine returns it with the answer."""

NO_TOKEN: Token = -1
"""The token of a command that gets no answer."""


class Now(NamedTuple):
    """The current time of both clocks. Timeouts use the monotonic clock, timestamps in records the wall clock."""

    monotonic_ms: int
    wall_ms: int


class LogRecord(NamedTuple):
    """One record of the log. A record without a value is a tombstone for its key."""

    key: bytes
    value: bytes | None


class Effects(Struct, Generic[Answer, Notice]):
    """The results of one step of a machine.

    All records of a step are appended in one write, or none. A crash during that write leaves all or none of a step
    that fits into one batch. Of a larger step it may leave the first batches; the replies of that step were not sent.
    """

    base_offset: Offset = Offset(0)
    """The offset of the first record of this step, if it has records. The shard sets it; machines only read it."""
    records: list[LogRecord] = field(default_factory=list)
    replies: list[tuple[Token, Answer]] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    """Messages to other parts of the broker. They leave before the replies of the same step."""
    replies_at_once: bool = False
    """True if no crash can invalidate the replies: they do not wait until the records of earlier steps are durable.
    Ignored if the step has records."""
    trim_below: Offset | None = None
    """The offset of the first record that a replay needs, once this step is durable; None to keep the log. A machine
    with snapshots sets it to the `base_offset` of the step that began the newest complete snapshot."""

    def reply(self, token: Token, answer: Answer) -> None:
        self.replies.append((token, answer))
