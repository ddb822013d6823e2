"""Stretches of a partition for readers whose position the broker keeps: whole batches, unopened, and what follows them.

A reader that keeps its own position opens what it gets and knows where to go on. Where the broker pushes, it must know
by itself, and without looking at the batches: the log's reader has that number anyway.
"""

from millstream.partition.partition import Partition
from millstream.storage.log.log_reader import Stretch


def read_stretch(partition: Partition, offset: int, max_bytes: int, max_messages: int) -> Stretch | None:
    """Batches from the one that contains `offset`, and the offset that follows them; None: use `read_stretch_cold`.

    No more than `max_bytes`, and none that reaches `max_messages` behind `offset`; but always the first batch. Nothing
    and `offset` itself when there is nothing yet. Raises what `Partition.read` raises.
    """
    partition.check_offset(offset)
    log, end = partition.log, partition.high_watermark
    limit = offset + max_messages
    if limit < end:
        whole = log.reader.whole_before(limit, offset)
        if whole is None:
            return None
        end = whole
    return log.lend(offset, max_bytes, end)


async def read_stretch_cold(partition: Partition, offset: int, max_bytes: int, max_messages: int) -> Stretch:
    """As `read_stretch`, waiting for the disk where it must."""
    partition.check_offset(offset)
    log, end = partition.log, partition.high_watermark
    limit = offset + max_messages

    def read() -> Stretch:
        reader = log.reader
        whole = reader.whole_before(limit, offset, cold=True) if limit < end else end
        assert whole is not None, "a cold search has no reason to give up"
        found = reader.read(offset, max_bytes, whole, cold=True)
        assert found is not None, "neither has a cold read"
        return found

    return await partition.workers.run(read)
