"""Stretches: whole batches within bounds, and the offset that really follows them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.batches import numbered_batch
from builders.partitions import Site, committed
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.partition import Partition
from millstream.partition.raw_reads import read_stretch, read_stretch_cold
from millstream.records.header import each_batch
from millstream.storage.log.log_reader import Stretch

counts = st.lists(st.integers(1, 20), min_size=1, max_size=30)


async def filled(site: Site, sizes: list[int], size_bytes: int = 40) -> Partition:
    partitions = await site.start()
    await partitions.create("orders", 1, {"segment.bytes": "16384"})
    partition = partitions.get("orders", 0)
    assert partition is not None
    for size in sizes:
        await committed(partition, numbered_batch(size, size_bytes=size_bytes))
    return partition


async def stretch(partition: Partition, offset: int, max_bytes: int, max_messages: int, *, cold: bool) -> Stretch:
    if cold:
        return await read_stretch_cold(partition, offset, max_bytes, max_messages)
    found = read_stretch(partition, offset, max_bytes, max_messages)
    assert found is not None
    return found


@given(sizes=counts, data=st.data(), cold=st.booleans())
def test_a_stretch_is_whole_batches_within_both_bounds_or_one_batch(
    sizes: list[int], data: st.DataObject, cold: bool
) -> None:
    async def story(site: Site) -> None:
        partition = await filled(site, sizes, size_bytes=data.draw(st.sampled_from([0, 40, 700])))
        end = partition.high_watermark
        offset = data.draw(st.integers(0, end - 1))
        max_bytes, max_messages = data.draw(st.integers(1, 20_000)), data.draw(st.integers(1, 2 * end))
        batches, next_offset = await stretch(partition, offset, max_bytes, max_messages, cold=cold)
        assert isinstance(batches, bytes)
        headers = [header for _, header in each_batch(batches)]
        assert headers[0].base_offset <= offset <= headers[0].last_offset
        assert headers[-1].next_offset == next_offset
        assert sum(header.size_bytes for header in headers) == len(batches)
        assert len(headers) == 1 or (len(batches) <= max_bytes and next_offset <= offset + max_messages)

    Site().run(story)


def test_stretch_follows_stretch_without_a_gap_up_to_the_end() -> None:
    async def story(site: Site) -> None:
        partition = await filled(site, [7] * 100)
        at = 0
        while at < partition.high_watermark:
            found = read_stretch(partition, at, 2_000, 10)
            assert found is not None
            assert at < found[1] <= at + 10
            at = found[1]
        assert at == 700
        assert read_stretch(partition, at, 2_000, 10) == (b"", at)
        assert await read_stretch_cold(partition, at, 2_000, 10) == (b"", at)

    Site().run(story)


@pytest.mark.parametrize("cold", [False, True])
def test_a_position_beyond_the_end_or_before_the_start_is_refused(cold: bool) -> None:
    async def story(site: Site) -> None:
        partition = await filled(site, [5, 5])
        await partition.delete_records(5)
        for offset in (4, 11):
            with pytest.raises(MillstreamError) as refused:
                await stretch(partition, offset, 100, 100, cold=cold)
            assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    Site().run(story)
