"""The bench's mechanics, with next to nothing to do: no figure is looked at, only that all of them are there.

Without Kafka and without the tool on librdkafka, so that nothing is needed that the tests do not need anyway.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = "# Measured\n\nWritten by people.\n"


def run(*arguments: str, tmp_path: Path) -> str:
    """Run a bench on a page of its own; the page afterwards."""
    page = tmp_path / "RESULTS.md"
    page.write_text(PAGE)
    command = [sys.executable, "-m", *arguments, "--tiny", "--data", str(tmp_path / "data"), "--output", str(page)]
    bench = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        said, _ = bench.communicate(timeout=240)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(bench.pid, signal.SIGKILL)  # The brokers too, should the bench not have ended them.
        bench.wait()
    assert bench.returncode == 0, said
    assert list(tmp_path.glob("data/*/data*/*")) == [], "no data is left behind"
    text = page.read_text()
    assert text.startswith(PAGE), "what people wrote stays"
    return text


@pytest.mark.parametrize(
    ("part", "rows"),
    [
        ("start", ["start | s to ready", "start | s to first acknowledgement", "idle memory | MB"]),
        ("wide", ["100 topics × 10 partitions, raw | CPU-s per million", "memory after 0.02 GB | MB"]),
        ("compressed", ["produce 100 B lz4, raw | M messages/s", "produce 100 B zstd, raw | CPU-s per million"]),
        ("flush", ["64 producers, 1000 partitions, raw | messages/s", "full batches, raw | CPU-s per million"]),
    ],
)
def test_the_bench_measures_and_writes_a_row_for_each_figure(part: str, rows: list[str], tmp_path: Path) -> None:
    text = run("bench", "--alone", "--only", part, tmp_path=tmp_path)
    for row in rows:
        assert row in text


def test_growth_is_measured_for_all_that_grows_and_for_each_kind_of_start(tmp_path: Path) -> None:
    text = run("bench.growth", tmp_path=tmp_path)
    for row in (
        "| messages in the log | 10,000, 50,000 | consume near the end |",
        "| partitions | 1, 10 | produce to each in turn |",
        "| idle connections | 0, 20 | consume |",
        "| groups | 1, 5 | commit an offset |",
        "| nothing | stopped in order |",
        "| 0.02 GB | killed just after all of it was written |",
    ):
        assert row in text
