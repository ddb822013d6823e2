"""Checks the topics that queries write, against the offsets that each batch has read by its checkpoint."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain

from faults.spark.checkpoint import Batch
from faults.spark.messages import brief, key_of, number_of, value_of
from faults.spark.readers import Row
from millstream.model.names import TopicPartition

Logs = Mapping[TopicPartition, Sequence[Row]]


def rows_read(batches: Sequence[Batch], source: Logs) -> list[list[Row]]:
    """Return the rows that each batch has read."""
    read = []
    for start, end in batches:
        slices = (rows[start.get(where.partition, 0) : end[where.partition]] for where, rows in source.items())
        read.append(list(chain.from_iterable(slices)))
    return read


def check_source(source: Logs, sent: int) -> None:
    """Assert that each sent message is stored exactly once."""
    rows = [row for log in source.values() for row in log]
    assert sorted(number_of(value) for _, value in rows) == list(range(sent))


def check_counts(read: Sequence[Sequence[Row]], counts: Logs) -> list[int]:
    """Assert that each batch wrote the running total of each of its keys; returns the row count after each batch."""
    expected: dict[bytes, list[int]] = defaultdict(list)
    totals: Counter[bytes] = Counter()
    for rows in read:
        fresh = Counter(key for key, _ in rows)
        totals += fresh
        for key in fresh:
            expected[key].append(totals[key])
    found: dict[bytes, list[int]] = defaultdict(list)
    for rows in counts.values():
        for key, value in rows:
            found[key].append(int(value))
    assert found == expected
    return list(accumulate(len({key for key, _ in rows}) for rows in read))


def check_copies(read: Sequence[Sequence[Row]], copies: Logs) -> list[int]:
    """Assert that each message was changed and written once, in batch order; returns the row count after each batch."""
    batches = {number_of(value): batch for batch, rows in enumerate(read) for _, value in rows}
    seen: Counter[int] = Counter()
    for where, rows in copies.items():
        last = 0
        for key, value in rows:
            number = number_of(value)
            assert (key, value) == (key_of(number), brief(value_of(number).upper()))
            assert batches[number] >= last, f"{where}: message {number} of batch {batches[number]} follows batch {last}"
            last = batches[number]
            seen[number] += 1
    assert seen == Counter(dict.fromkeys(batches, 1))
    return list(accumulate(map(len, read)))


def phase(planned: int, done: int, stored: int, rows: Sequence[int]) -> str:
    """Describe the progress of the current batch, given the row count after each batch."""
    if planned == done:
        return "between batches"
    before = rows[done] if done >= 0 else 0
    if stored <= before:
        return "before the first row"
    return "among the rows" if stored < rows[planned] else "after the last row"
