"""The bench of the web API works: each of the rows is measured, and the page is written."""

from pathlib import Path

from bench.gateway import waiting
from bench.gateway.__main__ import CASES, main


def test_the_web_api_is_measured(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    page.write_text("# Measured\n\nWritten by people.\n")
    assert main(["--tiny", "--output", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("# Measured\n\nWritten by people.\n\n<!-- gateway:begin")
    for case in CASES:
        assert f"| {case.title} | " in text
    assert "gateway's CPU while nobody asks" in text


def test_polls_that_wait_are_measured_beside_others(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    page.write_text("# Measured\n")
    assert waiting.main(["--tiny", "--output", str(page)]) == 0
    text = page.read_text()
    for row in ("nobody", "1,000 readers at 1,000 topics", "10,000 readers at 10 topics"):
        assert f"| {row} | " in text
