"""`python -m bench.codec`: records a second through the codec, compiled and plain, against aiokafka's Cython codec.

All contenders take turns, round after round, in one process and one thread, so that a slow moment of the machine hits
them alike; time is the thread's CPU time, and the median round counts. They encode from, and decode to, what their
users hold in their hands: lists of bytes and `Record`s here, calls per record and record objects there.
"""

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from penstock import records
from penstock.records import COMPILED, _decode, _encode
from penstock.records.arrow import decode_to_arrow, encode_table
from penstock.records.batch import decode_batches, encode_batch
from penstock.records.header import HEADER_BYTES

SOME_TIME_MS = 1_700_000_000_000
REPEAT_S = 0.05
"""How long each contender runs in a round."""

Contenders = dict[str, Callable[[], object]]


def plain(module: ModuleType) -> ModuleType:
    """The same source as the compiled `module`, run as Python."""
    source = Path(records.__file__).with_name(f"{module.__name__.rpartition('.')[2]}.py")
    spec = importlib.util.spec_from_file_location(f"plain{module.__name__}", source)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def aiokafka_encode(values: list[bytes | None], keys: list[bytes | None], timestamps: list[int]) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for offset, (timestamp, key, value) in enumerate(zip(timestamps, keys, values, strict=True)):
        builder.append(offset, timestamp, key, value, [])
    return bytes(builder.build())


def aiokafka_decode(batches: list[bytes]) -> list[object]:
    records: list[object] = []
    for batch in batches:
        whole = DefaultRecordBatch(batch)
        if not whole.validate_crc():
            raise ValueError("the batch is damaged")
        records += whole
    return records


def material(count: int, size_bytes: int) -> tuple[list[bytes | None], list[bytes | None], list[int]]:
    """Values, keys and times of `count` records."""
    values: list[bytes | None] = [b"%0*d" % (size_bytes, number) for number in range(count)]
    keys: list[bytes | None] = [b"key-%d" % number for number in range(count)]
    return values, keys, [SOME_TIME_MS + number // 10 for number in range(count)]


def encoders(count: int, size_bytes: int) -> Contenders:
    values, keys, timestamps = material(count, size_bytes)
    table = pa.table({"key": keys, "value": values, "timestamp": timestamps})
    encode_records = plain(_encode).encode_records
    return {
        "aiokafka": lambda: aiokafka_encode(values, keys, timestamps),
        "plain": lambda: encode_records(values, keys, None, timestamps, timestamps[0], None, HEADER_BYTES),
        "compiled": lambda: encode_batch(values, keys=keys, timestamps=timestamps),
        "Arrow": lambda: encode_table(table, batch_bytes=1 << 30),
    }


def decoders(count: int, size_bytes: int, batches: int) -> Contenders:
    """Of a buffer with several batches, as a fetch brings it."""
    values, keys, timestamps = material(count, size_bytes)
    batch = bytes(encode_batch(values, keys=keys, timestamps=timestamps))
    fetched = batch * batches
    body = batch[HEADER_BYTES:]
    decode_records = plain(_decode).decode_records
    return {
        "aiokafka": lambda: aiokafka_decode([batch] * batches),
        "plain": lambda: [
            decode_records(body, count, 0, count - 1, SOME_TIME_MS, None, 1 << 40) for _ in range(batches)
        ],
        "compiled": lambda: decode_batches(fetched),
        "Arrow": lambda: decode_to_arrow(fetched),
    }


def rate(work: Callable[[], object], count: int) -> float:
    """Records a second over about `REPEAT_S`."""
    begun = now = time.thread_time()
    calls = 0
    while now - begun < REPEAT_S:
        work()
        calls += 1
        now = time.thread_time()
    return calls * count / (now - begun)


def measure(field: Contenders, count: int, rounds: int) -> dict[str, float]:
    rates: dict[str, list[float]] = {name: [] for name in field}
    for _ in range(rounds):
        for name, work in field.items():
            rates[name].append(rate(work, count))
    return {name: statistics.median(each) for name, each in rates.items()}


def show(what: str, found: dict[str, float]) -> None:
    cells = " | ".join(f"{found[name] / 1e6:.2f}" for name in ("aiokafka", "plain", "compiled", "Arrow"))
    ratios = " | ".join(f"{found[name] / found['aiokafka']:.1f}" for name in ("compiled", "Arrow"))
    print(f"| {what} | {cells} | {ratios} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--records", type=int, default=1000, help="records in a batch")
    arguments = parser.parse_args()
    if not COMPILED:
        print("the codec is not compiled here: run make test, or setup.py build_ext --inplace, first", file=sys.stderr)
        return 1
    print("| million records/s | aiokafka | plain | compiled | Arrow | compiled / aiokafka | Arrow / aiokafka |")
    print("|---|---|---|---|---|---|---|")
    count = arguments.records
    for size_bytes in (100, 1000):
        show(f"encode {count:,} × {size_bytes} B", measure(encoders(count, size_bytes), count, arguments.rounds))
        for batches in (1, 10):
            found = measure(decoders(count, size_bytes, batches), count * batches, arguments.rounds)
            show(f"decode {batches} × {count:,} × {size_bytes} B", found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
