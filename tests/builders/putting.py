"""Puts messages to a partition without a broker, and counts the stored messages of each id."""

from collections import Counter
from collections.abc import Sequence

from builders.batches import batch, batch_with_ids
from builders.partitions import read_all
from millstream.model.message_id import MadeId
from millstream.partition.append_result import AppendResult
from millstream.partition.leadership import Leadership
from millstream.partition.message_ids.replay import own_id
from millstream.partition.opened_batches import BatchOpener
from millstream.partition.put_deduplication import PUT, KnownIds, put_job
from millstream.partition.watermark import ACKS_ALL


async def put_batch(partition: Leadership, records: bytearray, ids: Sequence[bytes] | None = None) -> AppendResult:
    """Append like Puts, and wait for the acknowledgement, also before KnownIds is raised."""
    view = memoryview(records)
    try:
        appended = await BatchOpener().append(partition, view, ACKS_ALL, put_job(partition, view, ids) or PUT)
    except KnownIds as known:
        if known.acknowledgement is not None:
            await known.acknowledgement
        raise
    if appended.acknowledgement is not None:
        await appended.acknowledgement
    return appended


async def put_ids(partition: Leadership, *ids: bytes) -> list[int]:
    """Store messages of these ids unless they are known, and return their offsets; unknown ids are sent again."""
    places: dict[bytes, int] = {}
    left = list(ids)
    while left:
        try:
            first = (await put_batch(partition, batch_with_ids(*left), left)).base_offset
        except KnownIds as error:
            places |= {left[index]: offset for index, offset in error.known}
            left = [each for each in left if each not in places]
        else:
            places |= {each: first + number for number, each in enumerate(left)}
            left = []
    return [places[each] for each in ids]


async def put_numbered(partition: Leadership, producer_id: int, sequence: int, *values: bytes, epoch: int = 0) -> int:
    """Append a batch whose messages have made ids, and return its offset."""
    records = batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return (await put_batch(partition, records)).base_offset


async def retry(partition: Leadership, made: MadeId, value: bytes, key: bytes | None = None) -> int:
    """Retry a message under its made id, and return its offset."""
    records = batch_with_ids(made.encode(), values=[value], keys=[key])
    try:
        return (await put_batch(partition, records, [made.encode()])).base_offset
    except KnownIds as error:
        ((_, offset),) = error.known
        return offset


async def stored_ids(partition: Leadership) -> Counter[bytes | None]:
    """Count the stored messages of each natural id."""
    return Counter(own_id(record) for record in await read_all(partition))
