"""Checks that the metrics bench compares pages with equal samples, and keeps hand-written text on its page."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = "# Measured\n\nWritten by people.\n"


def test_the_metrics_bench_compares_pages_with_equal_samples(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    page.write_text(PAGE)
    command = [sys.executable, "-m", "bench.metrics", "--tiny", "--output", str(page)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    text = page.read_text()
    assert text.startswith(f"{PAGE}\n<!-- metrics:begin")
    for row in ("an observation in a histogram, ns", "import, ms", "resident memory after the import, MB"):
        assert f"\n| {row} | " in text
