"""Defines the contenders of `bench.codec`: aiokafka's Cython codec, and ours compiled, uncompiled, and with Arrow."""

import importlib.util
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
from aiokafka.record import default_records, memory_records

from millstream.records import arrow, batch, record_decoder, record_encoder
from millstream.records.compiled import COMPILED as IS_COMPILED
from millstream.records.compression import Compression, compress, decompress
from millstream.records.header import CRC_START, HEADER_BYTES
from millstream.records.record import RecordHeader

RIVAL, UNCOMPILED, COMPILED, ARROW, LIBRARY = "aiokafka", "uncompiled", "compiled", "Arrow", "compressor alone"

Work = Callable[[], Any]

_SOME_TIME_MS = 1_700_000_000_000
_FETCH_BYTES = 1 << 20
_LEVELS = {"gzip": 9, "lz4": 9, "zstd": 3}
"""Compression levels that aiokafka uses, so that both codecs do the same work."""

_HEADERS: list[RecordHeader] = [("trace", b"4bf92f3577b34da6"), ("type", b"order")]
_fields = attrgetter("offset", "timestamp", "key", "value", "headers")


@dataclass(frozen=True)
class Shape:
    """The records of a batch, and how many form one."""

    records: int
    size_bytes: int
    has_keys: bool = True
    has_headers: bool = False
    compression: str = "none"

    def __str__(self) -> str:
        parts = [f"{self.records:,} × {self.size_bytes} B"]
        if not self.has_keys:
            parts.append("no keys")
        if self.has_headers:
            parts.append("headers")
        if self.compression != "none":
            parts.append(self.compression)
        return ", ".join(parts)

    @property
    def batches(self) -> int:
        """Number of batches in about a megabyte."""
        return max(1, _FETCH_BYTES // (HEADER_BYTES + self.records * self.size_bytes))


class Material:
    """The records of one batch. Half of each value is common text, the other half is unique."""

    def __init__(self, shape: Shape) -> None:
        chance = random.Random(0)
        text = b'{"kind":"order","state":"paid","id":"' * (shape.size_bytes // 37 + 1)
        own_bytes = shape.size_bytes // 4
        count = range(shape.records)
        self.values: list[bytes | None] = [
            text[: shape.size_bytes - 2 * own_bytes] + chance.randbytes(own_bytes).hex().encode() for _ in count
        ]
        self.keys: list[bytes | None] = [b"key-%06d" % number if shape.has_keys else None for number in count]
        self.headers: list[list[RecordHeader]] = [_HEADERS if shape.has_headers else [] for _ in count]
        self.timestamps = [_SOME_TIME_MS + number // 10 for number in count]

    def table(self, times: int) -> pa.Table:
        """Returns all records, repeated `times` times, as a table in one chunk."""
        headers = [[{"key": key, "value": value} for key, value in each] for each in self.headers]
        columns = {"key": self.keys, "value": self.values, "headers": headers, "timestamp": self.timestamps}
        once = pa.table({name: pa.array(each, arrow.SCHEMA.field(name).type) for name, each in columns.items()})
        return pa.concat_tables([once] * times).combine_chunks()


def encoders(shape: Shape) -> dict[str, Work]:
    """Returns the encoding work of each contender, after checking that all results are equal."""
    made, table = Material(shape), Material(shape).table(shape.batches)
    keys = made.keys if shape.has_keys else None
    headers = made.headers if shape.has_headers else None
    packing = _packing(shape)

    def with_lists(codec: ModuleType) -> list[bytearray]:
        return [
            codec.encode_batch(made.values, keys=keys, headers=headers, timestamps=made.timestamps, **packing)
            for _ in range(shape.batches)
        ]

    plain = _uncompiled_batch()
    unpacked = batch.encode_batch(made.values, keys=keys, headers=headers, timestamps=made.timestamps)
    work: dict[str, Work] = {
        RIVAL: lambda: [_rival_encode(made, shape) for _ in range(shape.batches)],
        UNCOMPILED: lambda: with_lists(plain),
        COMPILED: lambda: with_lists(batch),
        ARROW: lambda: arrow.encode_table(table, batch_bytes=len(unpacked), **packing),
    }
    if shape.compression == "none":
        _check_alike({name: [bytes(each[CRC_START:]) for each in one()] for name, one in work.items()})
    else:
        _check_alike({name: batch.decode_batches(b"".join(one()))[: shape.records] for name, one in work.items()})
        kind, body = Compression.named(shape.compression), bytes(unpacked[HEADER_BYTES:])
        work[LIBRARY] = lambda: [compress(kind, body, packing.get("level")) for _ in range(shape.batches)]
    return work


def decoders(shape: Shape) -> dict[str, Work]:
    """Returns the decoding work of each contender, after checking that all results are equal."""
    made = Material(shape)
    one = batch.encode_batch(
        made.values,
        keys=made.keys,
        headers=made.headers,
        timestamps=made.timestamps,
        **_packing(shape),
    )
    fetched, plain = bytes(one) * shape.batches, _uncompiled_batch()
    work: dict[str, Work] = {
        RIVAL: lambda: _look_up(_rival_decode(fetched)),
        UNCOMPILED: lambda: _look_up(plain.decode_batches(fetched)),
        COMPILED: lambda: _look_up(batch.decode_batches(fetched)),
        ARROW: lambda: arrow.decode_to_arrow(fetched),
    }
    _check_alike({name: (_rows_of_columns if name == ARROW else _rows)(each()) for name, each in work.items()})
    if shape.compression != "none":
        kind, body = Compression.named(shape.compression), bytes(one[HEADER_BYTES:])
        work[LIBRARY] = lambda: [decompress(kind, body, batch.DECODED_BYTES_MAX) for _ in range(shape.batches)]
    return work


def _packing(shape: Shape) -> dict[str, Any]:
    """Returns the arguments that enable compression in our encoders."""
    if shape.compression == "none":
        return {}
    return {"compression": shape.compression, "level": _LEVELS.get(shape.compression)}


def _rival_encode(made: Material, shape: Shape) -> bytes:
    builder = _rival("DefaultRecordBatchBuilder", default_records)(
        magic=2,
        compression_type=Compression.named(shape.compression),
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    append = builder.append
    for offset, (timestamp, key, value, headers) in enumerate(
        zip(made.timestamps, made.keys, made.values, made.headers, strict=True)
    ):
        append(offset, timestamp, key, value, headers)
    return bytes(builder.build())


def _rival_decode(fetched: bytes) -> list[Any]:
    found: list[Any] = []
    batches = _rival("MemoryRecords", memory_records)(fetched)
    while (one := batches.next_batch()) is not None:
        if not one.validate_crc():
            raise ValueError("a batch is damaged")
        found += one
    return found


def _rival(name: str, module: ModuleType) -> Any:
    """Returns a class of aiokafka, which must be the compiled one."""
    chosen = getattr(module, name)
    if "_crecords" not in chosen.__module__:
        raise SystemExit("aiokafka is installed without its Cython extension: nothing to compare with")
    return chosen


def _look_up(records: list[Any]) -> list[Any]:
    deque(map(_fields, records), maxlen=0)
    return records


def _rows(records: list[Any]) -> list[tuple[Any, ...]]:
    return [(*fields, tuple(headers)) for *fields, headers in map(_fields, records)]


def _rows_of_columns(columns: pa.RecordBatch) -> list[tuple[Any, ...]]:
    times = columns.column("timestamp").cast(pa.int64())
    headers = [tuple(tuple(header.values()) for header in each) for each in columns.column("headers").to_pylist()]
    rest = (columns.column(name).to_pylist() for name in ("key", "value"))
    return list(zip(columns.column("offset").to_pylist(), times.to_pylist(), *rest, headers, strict=True))


def _check_alike(results: Mapping[str, object]) -> None:
    for name, result in results.items():
        if result != results[RIVAL]:
            raise SystemExit(f"{name} and {RIVAL} produce different results")


def _uncompiled_batch() -> ModuleType:
    """Returns `millstream.records.batch` loaded from source, as plain Python."""
    if not IS_COMPILED:
        raise SystemExit("the codec is not compiled here: run make test, or setup.py build_ext --inplace, first")
    whole = _from_source(batch)
    for module, names in (
        (record_encoder, ("encode_records", "time_range")),
        (record_decoder, ("decode_records", "BatchRunDecoder")),
    ):
        plain = _from_source(module)
        for name in names:
            setattr(whole, name, getattr(plain, name))
    return whole


def _from_source(module: ModuleType) -> ModuleType:
    name = module.__name__.rpartition(".")[2]
    spec = importlib.util.spec_from_file_location(f"plain_{name}", Path(str(batch.__file__)).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded
