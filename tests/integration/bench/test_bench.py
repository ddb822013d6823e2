"""Runs the bench with minimal workloads, and checks that all figures exist, but not their values.

Without Kafka and without the tool on librdkafka, so that nothing is needed that the tests do not need anyway.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = "# Measured\n\nWritten by people.\n"


@contextmanager
def started(*arguments: str, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a bench in its smallest form, with a separate page and data."""
    (tmp_path / "RESULTS.md").write_text(PAGE)
    command = [sys.executable, "-m", *arguments, "--tiny", "--data", str(tmp_path / "data")]
    bench = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        yield bench
    finally:
        with suppress(ProcessLookupError):
            os.killpg(bench.pid, signal.SIGKILL)  # Also its brokers, if the bench has not ended them.
        bench.communicate()


def run(*arguments: str, tmp_path: Path) -> str:
    """Run a bench to its end, and return its page."""
    with started(*arguments, "--output", str(tmp_path / "RESULTS.md"), tmp_path=tmp_path) as bench:
        said, _ = bench.communicate(timeout=240)
    assert bench.returncode == 0, said
    return page(tmp_path)


def page(tmp_path: Path) -> str:
    assert list(tmp_path.glob("data/*/data*/*")) == [], "no data is left behind"
    text = (tmp_path / "RESULTS.md").read_text()
    assert text.startswith(PAGE), "what people wrote stays"
    return text


@pytest.mark.parametrize(
    ("part", "rows"),
    [
        ("start", ["start | s to ready", "start | s to first acknowledgement", "idle memory | MB"]),
        ("wide", ["100 topics × 10 partitions, raw | CPU-s per million"]),
        (
            "raw",
            ["consume 1 KB, 10 readers, raw | GB/s", "| consume 1 KB, raw | sendfile |", "[samples.md](samples.md)"],
        ),
        ("memory", ["memory after 0.02 GB | MB"]),
        ("java", ["consume 100 B, Java | M messages/s", "one message there and back, Java | mean µs"]),
        ("confluent", ["produce 100 B, Python | CPU-s per million"]),
        ("compressed", ["produce 100 B lz4, raw | M messages/s", "produce 100 B zstd, raw | CPU-s per million"]),
        ("flush", ["64 producers, 1000 partitions, raw | messages/s", "full batches, raw | CPU-s per million"]),
    ],
)
def test_the_bench_writes_a_row_for_each_measure(part: str, rows: list[str], tmp_path: Path) -> None:
    text = run("bench", "--alone", "--only", part, tmp_path=tmp_path)
    for row in rows:
        assert row in text


def test_an_interrupted_bench_writes_its_results_and_ends_its_processes(tmp_path: Path) -> None:
    output = str(tmp_path / "RESULTS.md")
    with started("bench", "--alone", "--only", "start,raw", "--output", output, tmp_path=tmp_path) as bench:
        assert bench.stdout is not None
        while "idle memory" not in bench.stdout.readline():
            assert bench.poll() is None
        bench.terminate()
        said, _ = bench.communicate(timeout=60)
        with pytest.raises(ProcessLookupError):
            os.killpg(bench.pid, 0)
    assert bench.returncode == 1, said
    text = page(tmp_path)
    assert "interrupted before its end" in text, said
    assert "idle memory | MB" in text, said


def test_the_bench_writes_a_profile_per_workload_or_names_what_it_needs(tmp_path: Path) -> None:
    profiles = tmp_path / "profiles"
    arguments = ["--alone", "--only", "wide", "--profile", "--profiles", str(profiles)]
    with started("bench", *arguments, tmp_path=tmp_path) as bench:
        said, _ = bench.communicate(timeout=240)
    if bench.returncode:
        assert "it needs root, or permission to trace" in said
    else:
        (profile,) = profiles.iterdir()
        # Such a short run may have no samples. Unit tests check that functions are named.
        assert "samples at 500 a second of threads at work" in profile.read_text()


def test_the_growth_bench_measures_every_dimension_and_kind_of_start(tmp_path: Path) -> None:
    text = run("bench.growth", tmp_path=tmp_path)
    for row in (
        "| messages in the log | 10,000, 50,000 | consume near the end |",
        "| partitions | 1, 10 | produce to each in turn |",
        "| idle connections | 0, 20 | consume |",
        "| groups | 1, 5 | commit an offset in each in turn |",
        "| nothing | stopped in order |",
        "| 0.02 GB | killed right after all of it was written |",
    ):
        assert row in text
