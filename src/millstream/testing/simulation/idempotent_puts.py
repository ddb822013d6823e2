"""Writes messages under message ids during a simulated run, and retries them.

Each attempt is made once, and a retry knows only the id. Some attempts arrive only after a retry. The broker must
report the same offset for an id every time, and in the end the log has the message of each id exactly once.
"""

import asyncio
from dataclasses import dataclass, field
from random import Random

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.message_id import ID_HEADER, MadeId
from millstream.model.names import TopicPartition
from millstream.records.batch import encode_batch
from millstream.sdk import requests
from millstream.sdk.connection.cluster import Cluster
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.wire_client import WireClient
from millstream.testing.simulation.plan import OncePlan
from millstream.testing.simulation.workload import HistoryRecorder, read_whole

WHERE = TopicPartition("once", 0)
_ATTEMPT_S = 5.0
_PAUSE_S = 0.2
_FIRST_WRITER = 10**12
"""The first producer id of these writers. It is above the ids that a broker assigns in a simulation."""

_TIME_MS = 0
"""A timestamp far in the past, so that no clock jump puts it into the future."""
Id = bytes | MadeId


@dataclass(slots=True)
class IdempotentPuts:
    """The writer and its expected state."""

    plan: OncePlan
    book: HistoryRecorder
    random: Random
    keeps_acknowledged: bool
    """True if the flush policy guarantees acknowledged writes after a power loss."""
    problems: list[str] = field(default_factory=list)
    _offsets: dict[Id, int] = field(default_factory=dict)
    _sent: list[Id] = field(default_factory=list)

    async def write(self, client: WireClient, cluster: Cluster) -> None:
        """Create the topic, then write and retry in turns."""
        if not self.plan.writes:
            return
        await self._create(client)
        for number in range(self.plan.writes):
            if self._sent and self.random.random() < self.plan.retry_chance:
                await self._put_own(cluster, self.random.sample(self._sent, 1))
            elif self.random.random() < 0.5:
                await self._put_own(cluster, [b"%d/%d" % (number, place) for place in range(self.random.randint(1, 4))])
            elif self.random.random() < 0.5:
                await self._put_made(cluster, self._made(_FIRST_WRITER + number, sequence=0))
            else:
                await self._put_late(cluster, _FIRST_WRITER + number)
            await asyncio.sleep(2 * self.plan.pause_s * self.random.random())

    async def check(self, client: WireClient, cluster: Cluster) -> None:
        """Retry all ids, then compare the log with the reported offsets."""
        if not self.plan.writes:
            return
        if not self.keeps_acknowledged:
            self._offsets.clear()
        for each in dict.fromkeys(self._sent):
            found: int | None = None
            while found is None:
                found = await self._put_own(cluster, [each])
        log = await read_whole(client, WHERE, self.book)
        self.book.note("once", len(log.records))
        if sorted(value for _, value in log.records) != sorted(map(_value, self._offsets)):
            self.problems.append(f"{len(log.records)} messages are stored under {len(self._offsets)} ids")
        at = dict(log.records)
        for each, offset in self._offsets.items():
            if at.get(offset) != _value(each):
                self.problems.append(f"the message of {each!r} is not at its reported offset {offset}")

    async def _create(self, client: WireClient) -> None:
        while True:
            try:
                await client.create_topic(WHERE.topic)
                return
            except MillstreamError as error:
                if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                    return
                await asyncio.sleep(_PAUSE_S)

    def _made(self, writer: int, *, sequence: int) -> list[MadeId]:
        """Make the ids of a batch whose first sequence number is `sequence`."""
        return [MadeId(writer, 0, 0, sequence, place) for place in range(self.random.randint(1, 4))]

    async def _put_made(self, cluster: Cluster, ids: list[MadeId]) -> None:
        producer_id, epoch, _, sequence, _ = ids[0]
        records = encode_batch(
            [*map(_value, ids)],
            timestamps=_TIME_MS,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        await self._put(cluster, list(ids), records, None)

    async def _put_late(self, cluster: Cluster, writer: int) -> None:
        """Write a batch of a known producer after one of its messages was retried, as if it was delayed in a buffer."""
        before = self._made(writer, sequence=0)
        await self._put_made(cluster, before)
        late = self._made(writer, sequence=len(before))
        await self._put_own(cluster, list(self.random.sample(late, 1)))
        await self._put_made(cluster, late)

    async def _put_own(self, cluster: Cluster, ids: list[Id]) -> int | None:
        """Write messages under own ids. Return the offset of the first one if it was reported."""
        values = [*map(_value, ids)]
        records = encode_batch(values, headers=[[(ID_HEADER, each)] for each in values], timestamps=_TIME_MS)
        return await self._put(cluster, ids, records, values)

    async def _put(self, cluster: Cluster, ids: list[Id], records: bytearray, beside: list[bytes] | None) -> int | None:
        self._sent += ids
        deadline = Deadline(_ATTEMPT_S)
        try:
            address = await cluster.leader(*WHERE, deadline)
            connection = await cluster.to(address, deadline)
            timeout_ms = cluster.broker_timeout_ms(deadline)
            request = requests.puts(WHERE, records, beside, acks=-1, timeout_ms=timeout_ms)
            stored = await connection.request(request, cluster.timeout_s(deadline))
        except requests.KnownIdsError as error:
            self._check_offsets({ids[place]: offset for place, offset in error.known.items()})
            return error.known.get(0)
        except MillstreamError as error:
            self.book.note("put once failed", error.code.name)
            cluster.forget(WHERE.topic)
            await asyncio.sleep(_PAUSE_S)
            return None
        self._check_offsets({each: stored.base_offset + place for place, each in enumerate(ids)})
        return stored.base_offset

    def _check_offsets(self, reported: dict[Id, int]) -> None:
        self.book.note("put once", *reported.values())
        for each, offset in reported.items():
            before = self._offsets.setdefault(each, offset)
            if before != offset and self.keeps_acknowledged:
                self.problems.append(f"STORED TWICE: {each!r} is at {before} and at {offset}")
            self._offsets[each] = offset


def _value(each: Id) -> bytes:
    """The value of an id's message, which is the id itself."""
    return each.encode() if isinstance(each, MadeId) else each
