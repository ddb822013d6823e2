"""Checks that the codec bench measures codecs with equal results, and keeps hand-written text on its page."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = "# Measured\n\nWritten by people.\n"


def test_the_codec_bench_compares_codecs_with_equal_results(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    page.write_text(PAGE)
    command = [sys.executable, "-m", "bench.codec", "--tiny", "--output", str(page)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    text = page.read_text()
    assert text.startswith(f"{PAGE}\n<!-- codec:begin")
    for row in ("encode 2 × 10 B, headers", "encode 3 × 10 B, no keys, lz4", "decode 2 × 10 B, headers"):
        assert f"| {row} | " in text
