"""What goes into the state machine of groups beside commands, and what comes out of it.

The machine is pure: it is told the time, it does no input or output, and everything it wants done is in the `Effects`
that it returns. The runtime appends the records to the log, and lets the replies leave once they are durable.
"""

from typing import NamedTuple

from msgspec import Struct, field

from millstream.groups.iterators.iterator import IteratorNotice
from millstream.groups.responses import Answer

Token = int
"""Names one request that waits for its answer; the runtime gives them out, the machine hands them back."""


class Now(NamedTuple):
    """The two clocks: timeouts run on the monotonic one, times of commits are the wall's."""

    monotonic_ms: int
    wall_ms: int


class GroupLogRecord(NamedTuple):
    """One record of `__consumer_offsets`; without a value it takes back what its key said before."""

    key: bytes
    value: bytes | None


class Effects(Struct):
    """What one command, or the passing of time, has brought about. The records belong together: all or none."""

    records: list[GroupLogRecord] = field(default_factory=list)
    replies: list[tuple[Token, Answer]] = field(default_factory=list)
    told: list[IteratorNotice] = field(default_factory=list)
    """What the servers of partitions are to hear, before the replies leave."""

    def reply(self, token: Token, answer: Answer) -> None:
        self.replies.append((token, answer))
