"""Puts to a partition without a broker around it, and what its log really has under each id."""

from collections import Counter
from collections.abc import Sequence

from builders.batches import batch, batch_with_ids
from builders.partitions import read_all
from millstream.model.message_id import MadeId
from millstream.partition.append_result import ACKS_ALL, AppendResult
from millstream.partition.message_ids.replay import own_id
from millstream.partition.opened_batches import BatchOpener
from millstream.partition.partition import Partition
from millstream.partition.put_deduplication import PUT, KnownIds, put_job


async def put_batch(partition: Partition, records: bytearray, ids: Sequence[bytes] | None = None) -> AppendResult:
    """Append as Puts does, and wait until it is acknowledged; also before KnownIds is raised."""
    view = memoryview(records)
    try:
        appended = await BatchOpener().append(partition, view, ACKS_ALL, put_job(partition, view, ids) or PUT)
    except KnownIds as known:
        if known.committed is not None:
            await known.committed
        raise
    if appended.committed is not None:
        await appended.committed
    return appended


async def put_ids(partition: Partition, *ids: bytes) -> list[int]:
    """Where messages of these ids are, each stored now or before; what is not known is sent again without the rest."""
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


async def put_numbered(partition: Partition, producer_id: int, sequence: int, *values: bytes, epoch: int = 0) -> int:
    """A batch whose messages have made ids; where it is."""
    records = batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return (await put_batch(partition, records)).base_offset


async def retry(partition: Partition, made: MadeId, value: bytes, key: bytes | None = None) -> int:
    """Where the message of a made id is, stored now or before."""
    records = batch_with_ids(made.encode(), values=[value], keys=[key])
    try:
        return (await put_batch(partition, records, [made.encode()])).base_offset
    except KnownIds as error:
        ((_, offset),) = error.known
        return offset


async def stored_ids(partition: Partition) -> Counter[bytes | None]:
    """How often the log has messages of each id of their own."""
    return Counter(own_id(record) for record in await read_all(partition))
