"""Checks that the bench of gRPC streams measures each row and writes its page."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_grpc_bench_measures_every_kind_of_stream(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    page.write_text("# Measured\n\nWritten by people.\n")
    command = [sys.executable, "-m", "bench.grpc_streams", "--tiny", "--output", str(page)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    text = page.read_text()
    assert text.startswith("# Measured\n\nWritten by people.\n\n<!-- grpc:begin")
    for row in ("columns", "columns with keys, 4 partitions", "events", "events with keys, 4 partitions"):
        assert f"| {row} | " in text
