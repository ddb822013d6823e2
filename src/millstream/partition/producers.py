"""Decides for idempotent producers whether a batch is new, a duplicate or out of order.

The state is pure and follows Kafka's rules. For each producer id it holds the newest epoch and its last five batches,
as many as a producer may have in flight:

- a batch with the sequence range of one of those five is a duplicate and gets the offset of the first copy;
- any other batch must follow the last one directly (sequence numbers start over at 0 after 2**31 - 1);
- an older epoch is fenced, and a newer epoch must begin at sequence 0;
- an unknown producer id may begin anywhere, since its state may have expired.

Ids from `FIRST_SELF_NAMED_PRODUCER` on belong to self-named writers. These return under the same id, perhaps days later
and from another machine, to write only what is missing. They are kept separately and longer, so that ordinary producers
do not displace them. An unknown self-named producer must begin at sequence 0, since earlier batches would be missing.

The number of producers is bounded. A producer is forgotten after it was silent for the window. If a partition or the
whole broker has too many of a kind, the longest silent one is forgotten. A forgotten producer can continue, but a retry
of an earlier batch is then stored twice. Silence is measured on the monotonic clock while the broker runs, so neither
clock jumps nor a long stop shorten the window.

One connection may introduce a tenth of either limit. Beyond that, its own oldest producer is forgotten, so a client
that invents producer ids does not displace the producers of others. Ids that the catalog has allocated have no
privilege, because a client can request any number of them. Connections are not saved: a start begins without shares.

`check` changes nothing. `record` is called once the batch is in the log, so a failed append leaves the state unchanged.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import ProducerId
from millstream.model.limits import FIRST_SELF_NAMED_PRODUCER
from millstream.partition.snapshot_encoding import SnapshotError, seal, unseal
from millstream.records.header import BatchHeader

WINDOW_MS = 24 * 3600 * 1000
SELF_NAMED_WINDOW_MS = 7 * WINDOW_MS
PER_PARTITION_MAX = 5_000
PER_BROKER_MAX = 50_000
PER_PARTITION_MIN = 5
"""Producers that every partition keeps when the broker is full, so that a busy partition does not empty the others."""

SENDERS_MIN = 10
"""Number of connections that are needed to fill a partition or the broker with producers."""

ANNOUNCED_MAX = 1_000
"""Producers whose first batch is being appended. If there are more, their connections are forgotten."""

BATCHES_KEPT = 5
SEQUENCE_MAX = 2**31 - 1
_NEVER = 2**63
"""An offset above that of any batch."""

_KIND = b"PROD"
_VERSION = 1
_COUNT = struct.Struct(">I")
_PRODUCER = struct.Struct(">qhqB")
_BATCH = struct.Struct(">iiqqq")


class StoredBatch(NamedTuple):
    """One stored batch. It is durable once the log is flushed beyond `last_offset`. `timestamp` is its append time."""

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
    """A known producer, its last stored sequence number and the time since then."""

    producer_id: ProducerId
    epoch: int
    last_sequence: int
    silent_ms: int


class ProducerBudget:
    """Counts the producers of one kind over all partitions of a broker, in total and by the connection they came from.

    The number 0 stands for unknown connections, whose producers are only counted in total.
    """

    __slots__ = ("_of_sender", "_share", "known", "most")

    def __init__(self, most: int = PER_BROKER_MAX) -> None:
        self.most = most
        self.known = 0
        self._share = max(1, most // SENDERS_MIN)
        self._of_sender: dict[int, int] = {}

    def counted(self, sender: int, *, by: int) -> None:
        """Count the producers of a connection that became known or were forgotten."""
        count = self._of_sender.get(sender, 0) + by
        assert count >= 0, "a producer is forgotten once"
        if count:
            self._of_sender[sender] = count
        else:
            del self._of_sender[sender]

    def is_share_used(self, sender: int) -> bool:
        """True if a connection has introduced more producers than its share."""
        return self._of_sender.get(sender, 0) > self._share


class _SenderShares:
    """The producers of one table by the connection that introduced them, oldest first."""

    __slots__ = ("_announced", "_by_sender", "_sender_of")

    def __init__(self) -> None:
        self._announced: dict[int, int] = {}
        self._sender_of: dict[ProducerId, int] = {}
        self._by_sender: dict[int, dict[ProducerId, None]] = {}

    def announced(self, producer_id: ProducerId, *, sender: int) -> None:
        """Note the connection that sends the first batch of a producer. The batch may still be refused."""
        if len(self._announced) >= ANNOUNCED_MAX:
            self._announced.clear()
        self._announced[producer_id] = sender

    def began(self, producer_id: ProducerId) -> int:
        """Assign a new producer to the connection that announced it, and return the connection; 0 if unknown."""
        sender = self._announced.pop(producer_id, 0)
        if sender:
            self._sender_of[producer_id] = sender
            self._by_sender.setdefault(sender, {})[producer_id] = None
        return sender

    def ended(self, producer_id: ProducerId) -> int:
        """Remove a producer that was forgotten, and return its connection; 0 if unknown."""
        sender = self._sender_of.pop(producer_id, 0)
        if sender:
            of_sender = self._by_sender[sender]
            del of_sender[producer_id]
            if not of_sender:
                del self._by_sender[sender]
        return sender

    def of(self, sender: int) -> dict[ProducerId, None]:
        return self._by_sender.get(sender, {})


class _ProducerTable:
    """The producers of one kind, ordered by their last batch. `put` moves a producer to the end."""

    __slots__ = ("_budget", "_most", "_share", "_window_ms", "known", "shares")

    def __init__(self, window_ms: int, *, most: int, budget: ProducerBudget | None) -> None:
        self._window_ms = window_ms
        self._most = most
        self._share = max(1, most // SENDERS_MIN)
        self._budget = budget or ProducerBudget()
        self.known: dict[ProducerId, _Producer] = {}
        self.shares = _SenderShares()

    def put(self, producer_id: ProducerId, producer: _Producer) -> None:
        is_new = self.known.pop(producer_id, None) is None
        self.known[producer_id] = producer
        if is_new:
            self._budget.known += 1
            if sender := self.shares.began(producer_id):
                self._budget.counted(sender, by=1)
                self._limit(sender)
        while len(self.known) > self._most or (
            self._budget.known > self._budget.most and len(self.known) > PER_PARTITION_MIN
        ):
            self._forget_oldest()

    def _limit(self, sender: int) -> None:
        """Forget the oldest producers of a connection beyond its share of the partition or of the broker."""
        mine = self.shares.of(sender)
        while len(mine) > self._share or (self._budget.is_share_used(sender) and len(mine) > PER_PARTITION_MIN):
            self._forget(next(iter(mine)))

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

    def replace(self, known: dict[ProducerId, _Producer]) -> None:
        while self.known:
            self._forget_oldest()
        self._budget.known += len(known)
        self.known = known

    def _forget_oldest(self) -> None:
        self._forget(next(iter(self.known)))

    def _forget(self, producer_id: ProducerId) -> None:
        del self.known[producer_id]
        self._budget.known -= 1
        if sender := self.shares.ended(producer_id):
            self._budget.counted(sender, by=-1)


class Producers:
    """The producers of one partition. Times are milliseconds of a monotonic clock."""

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
        """`most` is the maximum number of producers of each kind."""
        self._ordinary = _ProducerTable(window_ms, most=most, budget=budget)
        self._self_named = _ProducerTable(self_named_window_ms, most=most, budget=self_named_budget)

    def __len__(self) -> int:
        return len(self._ordinary.known) + len(self._self_named.known)

    def check(
        self, producer_id: ProducerId, *, epoch: int, base_sequence: int, last_sequence: int
    ) -> StoredBatch | None:
        """Return None if the batch may be appended, or the first copy if it was stored before.

        Raises INVALID_PRODUCER_EPOCH or OUT_OF_ORDER_SEQUENCE_NUMBER if the batch must not be appended.
        """
        is_self_named = producer_id >= FIRST_SELF_NAMED_PRODUCER
        producer = (self._self_named if is_self_named else self._ordinary).known.get(producer_id)
        if producer is None:
            if is_self_named and base_sequence != 0:
                raise _must_begin_with_0(producer_id, epoch=epoch, base_sequence=base_sequence)
            return None
        if epoch != producer.epoch:
            _check_new_epoch(producer_id, known_epoch=producer.epoch, epoch=epoch, base_sequence=base_sequence)
            return None
        for batch in producer.batches:
            if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                return batch
        expected = (producer.batches[-1].last_sequence + 1) & SEQUENCE_MAX
        if base_sequence != expected:
            raise MillstreamError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} at epoch {epoch} sent sequence {base_sequence}; expected {expected}",
            )
        return None

    def epoch_of(self, producer_id: ProducerId) -> int | None:
        """Return the newest epoch of a producer, or None if the producer is unknown."""
        producer = self._table(producer_id).known.get(producer_id)
        return None if producer is None else producer.epoch

    def sent_by(self, producer_id: ProducerId, *, sender: int) -> None:
        """Note the connection that sends a batch of a producer. It matters only if the producer is unknown."""
        table = self._table(producer_id)
        if producer_id not in table.known:
            table.shares.announced(producer_id, sender=sender)

    def record(self, producer_id: ProducerId, batch: StoredBatch, *, epoch: int, now_ms: int) -> None:
        """Record a batch that has been written to the log."""
        table = self._table(producer_id)
        producer = table.known.get(producer_id)
        batches: tuple[StoredBatch, ...] = (batch,)
        if producer is not None and producer.epoch == epoch:
            batches = (*producer.batches[1 - BATCHES_KEPT :], batch)
        table.put(producer_id, _Producer(epoch, now_ms, batches))

    def active(self, now_ms: int) -> list[ActiveProducer]:
        """Return the known producers, ordinary ones first, and within each kind the longest silent first."""
        return [
            ActiveProducer(producer_id, producer.epoch, producer.batches[-1].last_sequence, now_ms - producer.seen_ms)
            for producer_id, producer in self._all().items()
        ]

    def expire(self, now_ms: int) -> int:
        """Forget the producers that were silent for the window of their kind, and return their number."""
        return self._ordinary.expire(now_ms) + self._self_named.expire(now_ms)

    def join(self, budget: ProducerBudget, self_named_budget: ProducerBudget) -> None:
        """Count in these budgets from now on. A worker may build the state, but budgets belong to the event loop."""
        self._ordinary.join(budget)
        self._self_named.join(self_named_budget)

    def clear(self) -> None:
        self._ordinary.replace({})
        self._self_named.replace({})

    def reading_needs(self) -> Callable[[BatchHeader], bool]:
        """Return a function that is True for batches that the current state depends on.

        As long as the headers of these batches are in the log, a replay gives this state. Later changes of the state do
        not affect the function.
        """
        first = {producer_id: producer.batches[0].base_offset for producer_id, producer in self._all().items()}
        return lambda header: header.base_offset >= first.get(header.producer_id, _NEVER)

    def snapshot(self, now_ms: int) -> Callable[[], bytes]:
        """Copy the state and return a function that packs the copy. A worker may call it while appends continue."""
        frozen = self._all()
        return lambda: _pack(frozen, now_ms)

    def restore(self, sealed: bytes, now_ms: int) -> None:
        """Replace the state with a snapshot. An invalid snapshot raises SnapshotError and changes nothing."""
        known = _unpack(sealed, now_ms)
        self_named = {number: known.pop(number) for number in list(known) if number >= FIRST_SELF_NAMED_PRODUCER}
        self._ordinary.replace(known)
        self._self_named.replace(self_named)

    def _table(self, producer_id: ProducerId) -> _ProducerTable:
        return self._self_named if producer_id >= FIRST_SELF_NAMED_PRODUCER else self._ordinary

    def _all(self) -> dict[ProducerId, _Producer]:
        return self._ordinary.known | self._self_named.known


def _must_begin_with_0(producer_id: ProducerId, *, epoch: int, base_sequence: int) -> MillstreamError:
    return MillstreamError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {producer_id} began epoch {epoch} with sequence {base_sequence}; expected 0",
    )


def _check_new_epoch(producer_id: ProducerId, *, known_epoch: int, epoch: int, base_sequence: int) -> None:
    if epoch < known_epoch:
        raise MillstreamError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {producer_id} is at epoch {known_epoch}, but the batch has epoch {epoch}",
        )
    if base_sequence != 0:
        raise _must_begin_with_0(producer_id, epoch=epoch, base_sequence=base_sequence)


def _pack(known: dict[ProducerId, _Producer], now_ms: int) -> bytes:
    """Pack the producers: for each its id, epoch, milliseconds of silence, batch count and the batches' fields."""
    parts = [_COUNT.pack(len(known))]
    for producer_id, (epoch, seen_ms, batches) in known.items():
        parts.append(_PRODUCER.pack(producer_id, epoch, now_ms - seen_ms, len(batches)))
        parts.extend(_BATCH.pack(*batch) for batch in batches)
    return seal(_KIND, _VERSION, b"".join(parts))


def _unpack(sealed: bytes, now_ms: int) -> dict[ProducerId, _Producer]:
    payload = unseal(_KIND, _VERSION, sealed)
    known: dict[ProducerId, _Producer] = {}
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
        raise SnapshotError("the snapshot of producers is longer than its entries")
    return known
