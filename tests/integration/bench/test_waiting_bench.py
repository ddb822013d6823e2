"""Checks that the bench of waiting reads measures each row and writes its page."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_waiting_bench_measures_waiting_reads(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    page.write_text("# Measured\n\nWritten by people.\n")
    command = [sys.executable, "-m", "bench.waiting", "--tiny", "--output", str(page)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    text = page.read_text()
    assert text.startswith("# Measured\n\nWritten by people.\n\n<!-- waiting:begin")
    for row in ("nobody", "1,000 readers at 1,000 topics", "10,000 readers at 10 topics"):
        assert f"| {row} | " in text
