"""Provides hypothesis strategies for lists of records, and settings that make them repeatable."""

from typing import Any, NamedTuple, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from millstream.records.batch import encode_batch
from millstream.records.record import Record, RecordHeader

T = TypeVar("T")


def bounded(examples: int) -> settings:
    """Return settings for few, repeatable examples; the fixtures of these tests do not change between examples."""
    return settings(
        derandomize=True,
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[
            Phase.explicit,
            Phase.generate,
            Phase.shrink,
        ],  # Without the explain phase, which may take minutes.
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
    )


class RecordList(NamedTuple):
    """The arguments of a batch, one entry of each list per record."""

    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[list[RecordHeader]]
    timestamps: list[int]
    offset_deltas: list[int]

    def encode(self, **fields: Any) -> bytearray:
        """Encode the records as a batch; `fields` are further arguments of `encode_batch`."""
        return encode_batch(
            self.values,
            keys=self.keys,
            headers=self.headers,
            timestamps=self.timestamps,
            offset_deltas=self.offset_deltas,
            **fields,
        )

    def records(self, base_offset: int = 0) -> list[Record]:
        """Return the expected result of decoding."""
        return [
            Record(base_offset + delta, timestamp, key, value, tuple(headers))
            for key, value, headers, timestamp, delta in zip(*self, strict=True)
        ]


# Short lengths, and lengths around those at which a varint gets longer.
_blobs = st.none() | st.binary(max_size=20) | st.sampled_from([b"x" * size for size in (63, 64, 8191, 8192)])
_header = st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8))
_near = st.integers(1_700_000_000_000, 1_700_000_000_200)
_far = st.integers(0, 2**62)


@st.composite
def record_lists(draw: st.DrawFn, *, gaps: bool = True) -> RecordList:
    """Generate up to a dozen records, with or without gaps between their offsets."""
    count = draw(st.integers(1, 12))

    deltas = [0]
    for step in draw(_each(st.sampled_from([1, 1, 1, 2, 100]), count - 1)):
        deltas.append(deltas[-1] + (step if gaps else 1))
    return RecordList(
        draw(_each(_blobs, count)),
        draw(_each(_blobs, count)),
        draw(_each(st.lists(_header, max_size=3), count)),
        draw(_each(_near | _far, count)),
        deltas,
    )


def _each(items: st.SearchStrategy[T], count: int) -> st.SearchStrategy[list[T]]:
    return st.lists(items, min_size=count, max_size=count)
