"""Compares the codec with aiokafka's: `python -m bench.codec [--quick] [--rounds N]`.

All contenders do the same work on the same records in one process and one thread, in alternating turns, so that a slow
moment of the machine affects all of them. The thread's CPU time counts. Before the measurements, they must produce the
same batches and the same records.

Encoding creates batches, with checksum, from each codec's natural input: one call per record for aiokafka, lists for
ours, or an Arrow table in one chunk. Decoding takes the batches of a fetch of about 1 MB, verifies their checksums, and
accesses every field of every record, or creates Arrow columns.
"""

import argparse
import gc
import os
import platform
import statistics
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from bench.codecs import ARROW, COMPILED, LIBRARY, RIVAL, UNCOMPILED, Shape, Work, decoders, encoders
from bench.peers import ROOT, Millstream
from bench.report import machine, rewrite, spread

from millstream.node.allocator import keep_freed_memory

BEGIN = "<!-- codec:begin (written by bench/codec.py) -->"
END = "<!-- codec:end -->"

COMPILED_MIN = 1.0
ARROW_MIN = 5.0
"""Minimum speed relative to aiokafka. For Arrow only if decompression does not dominate."""

_COMPRESSED = tuple(
    Shape(1000, size_bytes, compression=compression)
    for size_bytes in (100, 1000)
    for compression in ("gzip", "snappy", "lz4", "zstd")
)
SHAPES = (
    Shape(1000, 100),
    Shape(1000, 100, has_keys=False),
    Shape(1000, 100, has_headers=True),
    Shape(10_000, 100),
    Shape(10, 100),
    Shape(1, 100),
    Shape(1000, 1000),
    Shape(1000, 1000, has_keys=False),
    Shape(1000, 1000, has_headers=True),
    Shape(10, 1000),
    *_COMPRESSED,
)
TINY_SHAPES = (Shape(2, 10, has_headers=True), Shape(3, 10, has_keys=False, compression="lz4"))


@dataclass(frozen=True, slots=True)
class Found:
    """Millions of records per second, for each contender one figure per round."""

    work: str
    shape: Shape
    rates: Mapping[str, Sequence[float]]

    def ratios(self, contender: str) -> list[float]:
        """Returns the speed relative to aiokafka, round by round."""
        pairs = zip(self.rates[contender], self.rates[RIVAL], strict=True)
        return [ours / theirs for ours, theirs in pairs]


def main() -> int:
    arguments = _parse()
    load_before = os.getloadavg()[0]
    keep_freed_memory()  # Otherwise chance decides which contender pays for fresh pages from the kernel.
    shapes = TINY_SHAPES if arguments.tiny else SHAPES
    found = []
    for work, contenders in (("encode", encoders), ("decode", decoders)):
        for shape in shapes:
            if arguments.only in f"{work} {shape}":
                found.append(measure(work, shape, contenders(shape), arguments.rounds, arguments.turn_s))
    lines = [
        "",
        f"`{' '.join(['python -m bench.codec', *sys.argv[1:]])}` on {time.strftime('%Y-%m-%d', time.gmtime())}: "
        f"{arguments.rounds} rounds in turns of {arguments.turn_s * 1000:g} ms.",
        f"Machine: {machine()}; load average {load_before:.1f} before the run began.",
        "",
        f"- {Millstream(Path()).version()}, compiled by Cython {version('cython')} and "
        f"{platform.python_compiler()}; crc32c {version('crc32c')}, PyArrow {version('pyarrow')}",
        f"- aiokafka {version('aiokafka')} with its Cython extension",
        f"- both compress at the same level with cramjam {version('cramjam')}, gzip with Python's zlib "
        f"{zlib.ZLIB_RUNTIME_VERSION}",
        "",
        "Million records per second of CPU time, the median, and how many times as fast as aiokafka, the median "
        "(smallest to largest) of the rounds:",
        "",
        *table(found),
        "",
    ]
    print("\n".join(lines))
    if arguments.output:
        rewrite(Path(arguments.output), lines, BEGIN, END)
    return 0


def measure(work: str, shape: Shape, contenders: Mapping[str, Work], rounds: int, turn_s: float) -> Found:
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        names = list(contenders) if number % 2 == 0 else list(contenders)[::-1]
        for name in names:
            rates[name].append(_rate(contenders[name], shape.records * shape.batches, turn_s))
    found = Found(work, shape, rates)
    print(table([found])[-1], file=sys.stderr, flush=True)
    return found


def _rate(work: Callable[[], object], count: int, turn_s: float) -> float:
    """Returns millions of records per second, measured over about `turn_s`."""
    gc.collect()  # Every contender begins with the same amount of garbage.
    begun = now = time.thread_time()
    calls = 0
    while now - begun < turn_s:
        work()
        calls += 1
        now = time.thread_time()
    return calls * count / (now - begun) / 1e6


def table(found: Sequence[Found]) -> list[str]:
    lines = [
        "| work | aiokafka | uncompiled | compiled | Arrow | compressor alone | compiled / aiokafka | Arrow / aiokafka "
        "| target |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        middles = {name: f"{statistics.median(rates):.3g}" for name, rates in one.rates.items()}
        cells = [middles.get(name, "") for name in (RIVAL, UNCOMPILED, COMPILED, ARROW, LIBRARY)]
        ratios = [spread(one.ratios(name)) for name in (COMPILED, ARROW)]
        lines.append(f"| {one.work} {' | '.join([str(one.shape), *cells, *ratios, _verdict(one)])} |")
    return lines


def _verdict(found: Found) -> str:
    targets = [(COMPILED, COMPILED_MIN)]
    if found.work == "decode" and found.shape.compression == "none":
        targets.append((ARROW, ARROW_MIN))
    return "; ".join(
        f"{name} ≥ {least:g}: {'met' if statistics.median(found.ratios(name)) >= least else '**missed**'}"
        for name, least in targets
    )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.codec", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three short rounds; results are only printed")
    parser.add_argument("--tiny", action="store_true", help="one minimal round, to test the bench itself")
    parser.add_argument("--rounds", type=int, help="number of rounds (default: 7; 3 with --quick)")
    parser.add_argument(
        "--only", default="", help="run only rows whose name contains this, such as: decode, 1000 × 100 B, zstd"
    )
    parser.add_argument(
        "--output", help="page to rewrite (default: bench/RESULTS.md; none with --quick, --tiny, --only)"
    )
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (1 if arguments.tiny else 3 if arguments.quick else 7)
    arguments.turn_s = 0.0005 if arguments.tiny else 0.02 if arguments.quick else 0.05
    if arguments.output is None and not (arguments.quick or arguments.tiny or arguments.only):
        arguments.output = str(ROOT / "bench" / "RESULTS.md")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
