"""Writing without doubles: sequence numbers, and what is known when an answer does not come.

Per partition, one batch is under way at a time, under an identity (producer id and epoch) the broker gave, with the
sequence numbers that follow the last batch it confirmed. The broker stores a sequence number once, so the same batch
can be sent again until its fate is known. Invariants:

- A batch keeps its identity and sequence numbers through all its attempts once one of them may have been stored.
- An identity is never used on a partition again after a batch under it was given up with its fate unknown: the next
  batch would carry the same numbers, and would be taken for the lost one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from penstock.model.entropy import Entropy
from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.names import TopicPartition
from penstock.records.batch import encode_batch
from penstock.records.record import RecordHeader
from penstock.sdk.answers import Produced, ProducerIdentity
from penstock.sdk.connection import ConnectionLostError
from penstock.sdk.producing.failures import IDENTITY_REFUSED, OutcomeUnknownError, perhaps_stored
from penstock.sdk.producing.line import SEQUENCE_MODULUS
from penstock.sdk.producing.options import ALL
from penstock.sdk.retry import Attempts, Deadline

_NOBODY = ProducerIdentity(-1, -1)


@dataclass(frozen=True, slots=True)
class Rows:
    """Messages for one partition, column by column."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    headers: Sequence[Iterable[RecordHeader] | None] | None
    timestamps_ms: Sequence[int] | int

    def __post_init__(self) -> None:
        for name in ("keys", "headers", "timestamps_ms"):
            column = getattr(self, name)
            if isinstance(column, Sequence) and len(column) != len(self.values):
                raise ValueError(f"there are {len(self.values)} values but {len(column)} {name}")

    def __len__(self) -> int:
        return len(self.values)

    def part(self, start: int, end: int) -> "Rows":
        times = self.timestamps_ms
        return Rows(
            self.values[start:end],
            self.keys and self.keys[start:end],
            self.headers and self.headers[start:end],
            times if isinstance(times, int) else times[start:end],
        )

    def picked(self, indexes: Sequence[int]) -> "Rows":
        times = self.timestamps_ms
        return Rows(
            [self.values[i] for i in indexes],
            self.keys and [self.keys[i] for i in indexes],
            self.headers and [self.headers[i] for i in indexes],
            times if isinstance(times, int) else [times[i] for i in indexes],
        )


@dataclass(slots=True)
class _Line:
    """The queue in front of one partition."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    identity: ProducerIdentity | None = None
    next_sequence: int = 0


Send = Callable[[TopicPartition, bytes | bytearray, int, Deadline], Awaitable[Produced]]


class Producer:
    """Gives batches their numbers and sees each of them through."""

    def __init__(
        self, send: Send, ask_identity: Callable[[Deadline], Awaitable[ProducerIdentity]], entropy: Entropy
    ) -> None:
        self._send = send
        self._ask_identity = ask_identity
        self._entropy = entropy
        self._identity: ProducerIdentity | None = None
        self._asking = asyncio.Lock()
        self._lines: dict[TopicPartition, _Line] = {}

    async def write(
        self, where: TopicPartition, rows: Rows, *, compression: str, acks: int, deadline: Deadline
    ) -> Produced:
        """Store the rows as one batch, once. With weaker `acks` than all, nothing in doubt is sent again.

        OutcomeUnknownError when the deadline comes first and the batch may be there; any other error means it is not.
        """
        line = self._lines.setdefault(where, _Line())
        async with line.lock:
            if deadline.is_over:
                text = f"{where}: nothing was sent; the time was over before its turn came"
                raise PenstockError(ErrorCode.REQUEST_TIMED_OUT, text)
            settled = False
            try:
                produced = await self._see_through(line, where, rows, compression, acks, deadline)
                settled = True
            except OutcomeUnknownError:
                raise
            except PenstockError:
                settled = True
                raise
            finally:
                if not settled:  # Also when cancelled: an answer may still be on its way.
                    self._retire(line)
            return produced

    async def _see_through(
        self, line: _Line, where: TopicPartition, rows: Rows, compression: str, acks: int, deadline: Deadline
    ) -> Produced:
        attempts = Attempts(self._entropy, deadline)
        in_doubt = unanswered = False
        while True:
            try:
                identity = await self._identity_of(line, deadline) if acks == ALL else _NOBODY
                produced = await self._send(
                    where, _batch(rows, compression, identity, line.next_sequence), acks, deadline
                )
                break
            except PenstockError as error:
                if in_doubt and error.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    produced = Produced(-1, -1, -1)
                    break
                in_doubt = in_doubt or perhaps_stored(error)
                unanswered = unanswered or isinstance(error, ConnectionLostError)
                if error.code in IDENTITY_REFUSED and acks == ALL and not in_doubt:
                    self._retire(line)
                    again = await attempts.pause()
                else:
                    again = (acks == ALL or not in_doubt) and await attempts.again(error)
                if not again:
                    account = attempts.account(error)
                    if in_doubt:
                        raise OutcomeUnknownError(where, account, unanswered=unanswered) from error
                    if account is not error:
                        raise account from error
                    raise
        if acks == ALL:
            line.next_sequence = (line.next_sequence + len(rows)) % SEQUENCE_MODULUS
        return produced

    async def _identity_of(self, line: _Line, deadline: Deadline) -> ProducerIdentity:
        if line.identity is None:
            async with self._asking:
                if self._identity is None:
                    self._identity = await self._ask_identity(deadline)
            line.identity = self._identity
            line.next_sequence = 0
        return line.identity

    def _retire(self, line: _Line) -> None:
        """No batch of this partition goes under its identity again; other partitions keep theirs."""
        if line.identity is not None and line.identity == self._identity:
            self._identity = None
        line.identity = None


def _batch(rows: Rows, compression: str, identity: ProducerIdentity, sequence: int) -> bytearray:
    return encode_batch(
        rows.values,
        keys=rows.keys,
        headers=rows.headers,
        timestamps=rows.timestamps_ms,
        compression=compression,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=sequence if identity is not _NOBODY else -1,
    )
