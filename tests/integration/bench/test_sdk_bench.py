"""Checks that the SDK bench measures every writer, and keeps hand-written text on its page."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = "# Measured\n\nWritten by people.\n"


def test_the_sdk_bench_measures_writers_whose_messages_are_all_stored(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    page.write_text(PAGE)
    command = [sys.executable, "-m", "bench.sdk", "--tiny", "--output", str(page)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    text = page.read_text()
    assert text.startswith(f"{PAGE}\n<!-- sdk:begin")
    for row in ("put", "put_many, lists", "put_many, Arrow, uncompiled", "put and await, asyncio", "aiokafka, send"):
        assert f"| {row} | " in text
    assert "× confluent-kafka, poll | ≥ 20 | " in text
    assert "import of `millstream`: " in text
