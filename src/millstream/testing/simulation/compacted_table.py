"""Writes and reads a compacted topic during a simulated run, as a table of keys and values.

One writer sets and deletes keys. One reader reads the topic again and again from its start. In the end the log must
have the last acknowledged value of each key, or a value whose write has an unknown outcome. Every record that the
reader sees must have been sent, offsets must increase, and an offset must always have the same record.
"""

import asyncio
from dataclasses import dataclass, field
from random import Random

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.records.record import Record
from millstream.sdk.aio.producer import AsyncProducer
from millstream.sdk.producing.failures import OutcomeUnknownError
from millstream.sdk.producing.options import ProducerSettings
from millstream.sdk.requests import BEGINNING, LATEST
from millstream.sdk.wire_client import WireClient
from millstream.testing.simulation.plan import TablePlan
from millstream.testing.simulation.workload import PUT_TIMEOUT_S, HistoryRecorder

TOPIC = "table"
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "16384",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "3000",
}
_VALUE_BYTES_MAX = 2_000
_PAUSE_S = 0.2


@dataclass(slots=True)
class _KeyState:
    """The writes to one key."""

    current: bytes | None = None
    """The last acknowledged value; None if there is none, or the key is deleted."""
    in_doubt: list[bytes | None] = field(default_factory=list)
    """Writes with an unknown outcome, which may take effect at any time."""
    sent: list[bytes | None] = field(default_factory=list)


@dataclass(slots=True)
class CompactedTable:
    """The writer and the reader of the table, with the expected state."""

    plan: TablePlan
    book: HistoryRecorder
    random: Random
    keeps_acknowledged: bool
    """True if the flush policy guarantees acknowledged writes after a power loss."""
    problems: list[str] = field(default_factory=list)
    _keys: dict[bytes, _KeyState] = field(default_factory=dict)
    _seen: dict[int, tuple[bytes | None, bytes | None]] = field(default_factory=dict)

    async def write(self, client: WireClient) -> None:
        """Create the topic, then set and delete keys."""
        if not self.plan.writes:
            return
        await self._create(client)
        async with client.producer(
            ProducerSettings(compression=self.plan.compression, timeout_s=PUT_TIMEOUT_S)
        ) as producer:
            for number in range(self.plan.writes):
                await self._put(producer, number)
                await asyncio.sleep(2 * self.plan.pause_s * self.random.random())

    async def read(self, client: WireClient) -> None:
        """Read the whole topic again and again, until cancelled."""
        while self.plan.writes:
            try:
                await self._read_whole(client)
            except MillstreamError as error:
                self.book.note("table read failed", error.code.name)
            await asyncio.sleep(_PAUSE_S)

    async def check(self, client: WireClient) -> None:
        """Compare the final log with the expected table."""
        if not self.plan.writes:
            return
        found: dict[bytes | None, bytes | None] = {}
        for record in await self._read_whole(client):
            found[record.key] = record.value
        self.book.note("table", len(found))
        if not self.keeps_acknowledged:
            return
        for name, key in self._keys.items():
            if found.get(name) not in (key.current, *key.in_doubt):
                self.problems.append(
                    f"key {name!r} of the table is {_shown(found.get(name))}, not {_shown(key.current)}"
                )

    async def _create(self, client: WireClient) -> None:
        while True:
            try:
                await client.create_topic(TOPIC, settings=SETTINGS)
                return
            except MillstreamError as error:
                if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                    return
                await asyncio.sleep(_PAUSE_S)

    async def _put(self, producer: AsyncProducer, number: int) -> None:
        random = self.random
        name = b"%d" % random.randrange(self.plan.keys)
        filler = random.randbytes(random.randint(0, _VALUE_BYTES_MAX))
        value = b"<%s/%d>" % (name, number) + filler if random.random() < 0.9 else None
        key = self._keys.setdefault(name, _KeyState())
        key.sent.append(value)
        try:
            stored = await producer.put(TOPIC, value, name)
        except OutcomeUnknownError as error:
            self.book.note("table put in doubt", error.code.name)
            key.in_doubt.append(value)
        except MillstreamError as error:
            self.book.note("table put refused", error.code.name)
        else:
            self.book.note("table put", stored.offset)
            key.current = value

    async def _read_whole(self, client: WireClient) -> list[Record]:
        start = await client.list_offset(TOPIC, 0, BEGINNING)
        end = await client.list_offset(TOPIC, 0, LATEST)
        assert start is not None
        assert end is not None
        position, records = start.offset, list[Record]()
        while position < end.offset:
            fetched = await client.fetch(TOPIC, 0, position, max_bytes=self.plan.max_bytes, max_wait_ms=0)
            for record in fetched.records:
                self._check_record(record, position)
            records += fetched.records
            if fetched.next_offset <= position:
                break  # The log was truncated meanwhile, as weak flush policies permit.
            position = fetched.next_offset
        self.book.note("table read", start.offset, end.offset, len(records))
        return records

    def _check_record(self, record: Record, position: int) -> None:
        """Compare a record with the sent values, and with earlier reads of its offset."""
        key = self._keys.get(record.key or b"")
        if key is None or record.value not in key.sent:
            self.problems.append(f"offset {record.offset} of the table has a value never sent: {_shown(record.value)}")
        if record.offset < position:
            self.problems.append(f"offset {record.offset} of the table was returned for a read from {position}")
        before = self._seen.setdefault(record.offset, (record.key, record.value))
        if self.keeps_acknowledged and before != (record.key, record.value):
            self.problems.append(f"offset {record.offset} of the table has another record than before")


def _shown(value: bytes | None) -> str:
    return "nothing" if value is None else repr(value[:40])
