"""Checks that the bench of the web API measures each row and writes its page."""

from pathlib import Path

from bench.gateway import mixed, waiting
from bench.gateway.__main__ import CASES, main


def test_the_gateway_bench_measures_the_web_api(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    page.write_text("# Measured\n\nWritten by people.\n")
    assert main(["--tiny", "--output", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("# Measured\n\nWritten by people.\n\n<!-- gateway:begin")
    for case in CASES:
        assert f"| {case.title} | " in text
    assert "gateway's CPU while nobody asks" in text


def test_the_gateway_bench_measures_waiting_polls(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    page.write_text("# Measured\n")
    assert waiting.main(["--tiny", "--output", str(page)]) == 0
    text = page.read_text()
    for row in ("nobody", "1,000 readers at 1,000 topics", "10,000 readers at 10 topics"):
        assert f"| {row} | " in text


def test_the_gateway_bench_measures_reads_and_commits_together(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    page.write_text("# Measured\n")
    assert mixed.main(["--tiny", "--output", str(page)]) == 0
    rows = [line.strip("| ").split(" | ") for line in page.read_text().splitlines() if "16 readers and 16" in line]
    ((_, reads, _, commits, _),) = rows
    assert float(reads.replace(",", "")) > 0
    assert float(commits.replace(",", "")) > 0
