"""Tests the bookkeeping of chunks, batches and receipts, and the distribution of rows over partitions."""

from random import Random
from threading import RLock
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.message_id import as_message_id
from millstream.sdk.producing.chunk import Accumulator, ProducerBatch, ProducerChunk, Receipt, as_bytes, cut
from millstream.sdk.producing.chunk_partitioning import runs
from millstream.sdk.producing.options import ProducerSettings
from millstream.sdk.producing.row_partitioning import partition_for, picked, shares


def intake() -> Accumulator:
    return Accumulator(
        RLock(), None, ProducerSettings(), lambda: 5, lambda: None, lambda size: None, lambda topic: None
    )


optional_bytes = st.none() | st.binary(max_size=5)
rows = st.lists(
    st.tuples(
        optional_bytes,
        optional_bytes,
        st.none() | st.just({"h": b"x"}),
        st.none() | st.integers(0, 3),
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.binary(min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=30,
)


@given(rows)
def test_every_row_of_a_chunk_keeps_its_columns_together(rows: list[tuple[Any, ...]]) -> None:
    taker = intake()
    for value, key, headers, partition, hashed, own in rows:
        taker.put("t", value, key, headers, None, partition, hashed, own, None)
    (chunk,) = taker.take(None)
    assert chunk.count == len(rows)
    assert chunk.values == [row[0] for row in rows]
    for at, name in ((1, "keys"), (3, "partitions"), (4, "hashes"), (5, "ids")):
        column = getattr(chunk, name)
        assert (column or [None] * len(rows)) == [row[at] for row in rows]
    assert [each and dict(each) for each in chunk.headers or [None] * len(rows)] == [row[2] for row in rows]
    assert taker.held_bytes == chunk.held_bytes
    taker.release(chunk.held_bytes)
    assert taker.held_bytes == 0


@pytest.mark.parametrize(
    ("column", "rows", "expected"),
    [
        ([b"a", None, b"c"], [2, 1], [b"c", None]),
        ([b"a"], [], []),
        ([b"a"], None, [b"a"]),
        (None, [0], None),
    ],
)
def test_picked_returns_the_values_of_the_given_rows(
    column: list[bytes | None] | None, rows: list[int] | None, expected: list[bytes | None] | None
) -> None:
    assert picked(column, rows) == expected


@given(rows, st.integers(1, 7), st.integers(0, 6))
def test_rows_are_distributed_in_order_by_the_first_rule_that_applies(
    rows: list[tuple[Any, ...]], count: int, turn: int
) -> None:
    _, keys, _, partitions, hashes, ids = (list(column) for column in zip(*rows, strict=True))
    found = shares(len(rows), partitions, hashes, keys, ids, count, turn)
    assert sorted(row for share in found.values() for row in share) == list(range(len(rows)))
    for partition, share in found.items():
        assert share == sorted(share)
        for row in share:
            if partitions[row] is not None:
                assert partition == partitions[row]
            elif hashes[row] is not None:
                assert partition == hashes[row] % count
            elif keys[row] is not None:
                assert partition == partition_for(keys[row], count)
            elif ids[row] is not None:
                assert partition == partition_for(ids[row], count)
            else:
                assert partition == turn


@given(st.lists(st.integers(1, 200), min_size=1, max_size=60), st.integers(1, 400), st.integers(1, 20))
def test_cut_covers_all_messages_and_respects_the_byte_and_row_limits(sizes: list[int], most: int, rows: int) -> None:
    pieces = cut([b"v" * size for size in sizes], None, None, most, rows)
    assert [start for start, _, _ in pieces] == [0, *(end for _, end, _ in pieces[:-1])]
    assert pieces[-1][1] == len(sizes)
    for start, end, size in pieces:
        assert end - start <= rows
        assert size <= most or end - start == 1
        assert size > sum(sizes[start:end])


@given(st.integers(1, 40), st.integers(0, 2**32))
def test_a_receipt_finds_its_row_after_any_number_of_splits(count: int, seed: int) -> None:
    random = Random(seed)
    chunk = ProducerChunk("t", None, ProducerSettings())
    chunk.fill([b"v"] * count, None, None, 5, None, None, None, 1)
    owner: dict[int, tuple[ProducerBatch, int]] = {}

    def assign(rows: list[int] | None) -> ProducerBatch:
        batch = ProducerBatch(chunk, random.randrange(9), rows, 0)
        chunk.assign(batch)
        owner.update({row: (batch, at) for at, row in enumerate(range(count) if rows is None else rows)})
        return batch

    waiting = [assign(None)]
    while waiting:
        batch = waiting.pop()
        rows = list(range(count)) if batch.rows is None else batch.rows
        if len(rows) > 1 and random.random() < 0.6:
            middle = random.randrange(1, len(rows))
            waiting += [assign(rows[:middle]), assign(rows[middle:])]
        else:
            batch.base_offset = random.randrange(1000)
            batch.is_settled = True
    for row, (batch, position) in owner.items():
        place = Receipt(chunk, row).result()
        assert (place.partition, place.offset) == (batch.partition, batch.base_offset + position)
    found = [(each, position + at) for each, position, length in chunk.runs() for at in range(length)]
    assert found == [owner[row] for row in range(count)]


@given(st.lists(st.none() | st.sampled_from([b"a", b"b", b"c", b"~1.0.0.0.0", b"~1.0.0.0.1"]), min_size=1, max_size=20))
def test_rows_are_split_into_batches_by_their_message_ids(
    ids: list[bytes | None],
) -> None:
    found = runs(range(len(ids)), ids)
    assert [row for run in found for row in run] == list(range(len(ids)))
    for run in found:
        own = [ids[row] for row in run]
        assert all(each is None for each in own) or (None not in own and len(set(own)) == len(own))
        assert len(own) == 1 or not any(each is not None and each.startswith(b"~") for each in own)


@pytest.mark.parametrize(("given", "taken"), [("é", b"\xc3\xa9"), (bytearray(b"x"), b"x"), (memoryview(b"y"), b"y")])
def test_text_and_buffers_are_converted_to_bytes(given: object, taken: bytes) -> None:
    assert as_bytes(given) == taken
    assert as_message_id("a") == b"a"


@pytest.mark.parametrize("wrong", [5, ["x"], {"h"}])
def test_values_and_headers_of_other_types_are_refused(wrong: object) -> None:
    with pytest.raises(TypeError, match="bytes, str or None"):
        intake().put("t", wrong, None, None, None, None, None, None, None)
    with pytest.raises(TypeError):
        intake().put("t", b"v", None, {wrong: b"x"} if isinstance(wrong, int) else [(5, b"x")], *[None] * 5)
