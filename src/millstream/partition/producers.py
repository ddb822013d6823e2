"""Idempotent producers: which batch is new, which was stored before, which is missing.

Pure state, decided as Kafka decides it. Per producer id the newest epoch and its last five batches are known, as many
as a producer may have under way:

- a batch whose sequence range is among those five is a duplicate, answered with the place of the first copy;
- otherwise it must follow the last one directly (sequences start over at 0 after 2**31 - 1);
- an older epoch is fenced, a newer one must begin at sequence 0;
- a producer id that is not known may begin anywhere, since its state may have expired here.

Ids from `FIRST_SELF_NAMED_PRODUCER` on belong to writers that name themselves and come back under the same id, perhaps
days later and from another machine, to write only what is missing. They are kept apart, for longer, so that ordinary
producers do not crowd them out; and one that is not known must begin at sequence 0: the batches before it would be
missing.

Bounded: a producer is forgotten when it was silent for the window, and the one longest silent of its kind goes when a
partition, or the broker as a whole, has too many. Whoever is forgotten can go on, but a retry of what it sent before is
then stored a second time. Silence is counted while the broker runs and on the monotonic clock, so neither a clock that
jumps nor a long stop shortens the window.

`check` changes nothing; `record` is called when the batch is in the log. So a failed append leaves no trace.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.limits import FIRST_SELF_NAMED_PRODUCER
from millstream.partition.snapshot_encoding import SnapshotError, seal, unseal
from millstream.records.header import BatchHeader

WINDOW_MS = 24 * 3600 * 1000
SELF_NAMED_WINDOW_MS = 7 * WINDOW_MS
PER_PARTITION_MAX = 5_000
PER_BROKER_MAX = 50_000
PER_PARTITION_MIN = 5
"""So many stay in every partition, however full the broker is: one noisy partition does not empty the others."""

BATCHES_KEPT = 5
SEQUENCE_MAX = 2**31 - 1
_NOWHERE = 2**63
"""An offset beyond any that a batch can have."""

_KIND = b"PROD"
_VERSION = 1
_COUNT = struct.Struct(">I")
_PRODUCER = struct.Struct(">qhqB")
_BATCH = struct.Struct(">iiqqq")


class StoredBatch(NamedTuple):
    """One batch as it was stored; `last_offset` tells when it is durable, `timestamp` when it was appended."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class _Producer(NamedTuple):
    epoch: int
    seen_ms: int
    batches: tuple[StoredBatch, ...]


class ActiveProducer(NamedTuple):
    """A producer that is known, with the last of what it stored and how long ago that was."""

    producer_id: int
    epoch: int
    last_sequence: int
    silent_ms: int


class ProducerBudget:
    """How many producers of one kind all partitions of a broker know together."""

    __slots__ = ("known", "most")

    def __init__(self, most: int = PER_BROKER_MAX) -> None:
        self.most = most
        self.known = 0


class _Shelf:
    """The producers of one kind, ordered by the time last seen: `put` moves a producer to the end."""

    __slots__ = ("_budget", "_most", "_window_ms", "known")

    def __init__(self, window_ms: int, most: int, budget: ProducerBudget | None) -> None:
        self._window_ms = window_ms
        self._most = most
        self._budget = budget or ProducerBudget()
        self.known: dict[int, _Producer] = {}

    def put(self, producer_id: int, producer: _Producer) -> None:
        if self.known.pop(producer_id, None) is None:
            self._budget.known += 1
        self.known[producer_id] = producer
        while len(self.known) > self._most or (
            self._budget.known > self._budget.most and len(self.known) > PER_PARTITION_MIN
        ):
            self._forget_oldest()

    def expire(self, now_ms: int) -> int:
        before = len(self.known)
        while self.known:
            oldest = next(iter(self.known.values()))
            if now_ms - oldest.seen_ms < self._window_ms:
                break
            self._forget_oldest()
        return before - len(self.known)

    def join(self, budget: ProducerBudget) -> None:
        self._budget.known -= len(self.known)
        self._budget = budget
        budget.known += len(self.known)

    def replace(self, known: dict[int, _Producer]) -> None:
        self._budget.known += len(known) - len(self.known)
        self.known = known

    def _forget_oldest(self) -> None:
        del self.known[next(iter(self.known))]
        self._budget.known -= 1


class Producers:
    """The producers of one partition. Times are milliseconds of a clock that never goes back."""

    __slots__ = ("_ordinary", "_self_named")

    def __init__(
        self,
        *,
        window_ms: int = WINDOW_MS,
        self_named_window_ms: int = SELF_NAMED_WINDOW_MS,
        most: int = PER_PARTITION_MAX,
        budget: ProducerBudget | None = None,
        self_named_budget: ProducerBudget | None = None,
    ) -> None:
        """`most` is meant for each kind."""
        self._ordinary = _Shelf(window_ms, most, budget)
        self._self_named = _Shelf(self_named_window_ms, most, self_named_budget)

    def __len__(self) -> int:
        return len(self._ordinary.known) + len(self._self_named.known)

    def check(self, producer_id: int, epoch: int, base_sequence: int, last_sequence: int) -> StoredBatch | None:
        """None for a batch that may be appended; the first copy for one that was stored before.

        Raises INVALID_PRODUCER_EPOCH or OUT_OF_ORDER_SEQUENCE_NUMBER for one that must not be appended.
        """
        is_self_named = producer_id >= FIRST_SELF_NAMED_PRODUCER
        producer = (self._self_named if is_self_named else self._ordinary).known.get(producer_id)
        if producer is None:
            if is_self_named and base_sequence != 0:
                raise _must_begin_with_0(producer_id, epoch, base_sequence)
            return None
        if epoch != producer.epoch:
            _check_new_epoch(producer_id, producer.epoch, epoch, base_sequence)
            return None
        for batch in producer.batches:
            if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                return batch
        expected = (producer.batches[-1].last_sequence + 1) & SEQUENCE_MAX
        if base_sequence != expected:
            raise MillstreamError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} at epoch {epoch} sent sequence {base_sequence}, {expected} comes next",
            )
        return None

    def epoch_of(self, producer_id: int) -> int | None:
        """The newest epoch of a producer; None when it is not known."""
        producer = self._shelf(producer_id).known.get(producer_id)
        return None if producer is None else producer.epoch

    def record(self, producer_id: int, epoch: int, batch: StoredBatch, now_ms: int) -> None:
        """The batch is in the log now."""
        shelf = self._shelf(producer_id)
        producer = shelf.known.get(producer_id)
        batches: tuple[StoredBatch, ...] = (batch,)
        if producer is not None and producer.epoch == epoch:
            batches = (*producer.batches[1 - BATCHES_KEPT :], batch)
        shelf.put(producer_id, _Producer(epoch, now_ms, batches))

    def active(self, now_ms: int) -> list[ActiveProducer]:
        """Those that are known, of each kind the longest silent first."""
        return [
            ActiveProducer(producer_id, producer.epoch, producer.batches[-1].last_sequence, now_ms - producer.seen_ms)
            for producer_id, producer in self._all().items()
        ]

    def expire(self, now_ms: int) -> int:
        """Forget who was silent for the whole window of its kind; tells how many."""
        return self._ordinary.expire(now_ms) + self._self_named.expire(now_ms)

    def join(self, budget: ProducerBudget, self_named_budget: ProducerBudget) -> None:
        """Count in these budgets from now on: state is built in a worker, budgets belong to the event loop."""
        self._ordinary.join(budget)
        self._self_named.join(self_named_budget)

    def clear(self) -> None:
        self._ordinary.replace({})
        self._self_named.replace({})

    def reading_needs(self) -> Callable[[BatchHeader], bool]:
        """Whether a batch is one of those by which its producer is known here; as it is now, whatever comes later.

        As long as their headers are in the log, reading it gives this state.
        """
        first = {producer_id: producer.batches[0].base_offset for producer_id, producer in self._all().items()}
        return lambda header: header.base_offset >= first.get(header.producer_id, _NOWHERE)

    def snapshot(self, now_ms: int) -> Callable[[], bytes]:
        """The state as it is now; calling the result packs it, which may happen in a worker while appends go on."""
        frozen = self._all()
        return lambda: _pack(frozen, now_ms)

    def restore(self, sealed: bytes, now_ms: int) -> None:
        """Take over a snapshot in place of what is known; SnapshotError, and no change, when it cannot be used."""
        known = _unpack(sealed, now_ms)
        self_named = {number: known.pop(number) for number in list(known) if number >= FIRST_SELF_NAMED_PRODUCER}
        self._ordinary.replace(known)
        self._self_named.replace(self_named)

    def _shelf(self, producer_id: int) -> _Shelf:
        return self._self_named if producer_id >= FIRST_SELF_NAMED_PRODUCER else self._ordinary

    def _all(self) -> dict[int, _Producer]:
        return self._ordinary.known | self._self_named.known


def _must_begin_with_0(producer_id: int, epoch: int, base_sequence: int) -> MillstreamError:
    return MillstreamError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {producer_id} began epoch {epoch} with sequence {base_sequence}, it must begin with 0",
    )


def _check_new_epoch(producer_id: int, known_epoch: int, epoch: int, base_sequence: int) -> None:
    if epoch < known_epoch:
        raise MillstreamError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {producer_id} is at epoch {known_epoch}, a batch came with {epoch}",
        )
    if base_sequence != 0:
        raise _must_begin_with_0(producer_id, epoch, base_sequence)


def _pack(known: dict[int, _Producer], now_ms: int) -> bytes:
    """Per producer: id, epoch, milliseconds of silence, number of batches; per batch the fields of StoredBatch."""
    parts = [_COUNT.pack(len(known))]
    for producer_id, (epoch, seen_ms, batches) in known.items():
        parts.append(_PRODUCER.pack(producer_id, epoch, now_ms - seen_ms, len(batches)))
        parts.extend(_BATCH.pack(*batch) for batch in batches)
    return seal(_KIND, _VERSION, b"".join(parts))


def _unpack(sealed: bytes, now_ms: int) -> dict[int, _Producer]:
    payload = unseal(_KIND, _VERSION, sealed)
    known: dict[int, _Producer] = {}
    try:
        (count,) = _COUNT.unpack_from(payload)
        position = _COUNT.size
        for _ in range(count):
            producer_id, epoch, silent_ms, batch_count = _PRODUCER.unpack_from(payload, position)
            position += _PRODUCER.size
            end = position + batch_count * _BATCH.size
            batches = tuple(StoredBatch(*fields) for fields in _BATCH.iter_unpack(payload[position:end]))
            position = end
            if not batches:
                raise SnapshotError(f"producer {producer_id} has no batch")
            known[producer_id] = _Producer(epoch, now_ms - silent_ms, batches)
    except struct.error as error:
        raise SnapshotError(f"the snapshot of producers ends too early: {error}") from None
    if position != len(payload):
        raise SnapshotError("the snapshot of producers has more bytes than it says")
    return known
