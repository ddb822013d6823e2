"""Checks that the fixtures work in any test suite once Millstream is installed."""

import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "testing.md"


def example(beginning: str) -> str:
    """The Python example of the page that begins with this text."""
    blocks = PAGE.read_text().split("```python\n")[1:]
    (found,) = [block.split("```")[0] for block in blocks if block.startswith(beginning)]
    return found


def test_the_fixtures_work_in_an_unrelated_test_suite(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(example("from datetime import timedelta"))
    with_process = "def test_process(millstream_process):\n    assert millstream_process.is_running\n"
    (tmp_path / "test_more.py").write_text(with_process)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert "5 passed" in run.stdout, run.stdout + run.stderr


def test_the_documented_example_with_settings_works(tmp_path: Path) -> None:
    program = example("from millstream.testing import EmbeddedBroker").replace("some-data", str(tmp_path / "data"))
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True)
    assert [line.split(":")[0] for line in run.stdout.splitlines()] == ["127.0.0.1", "127.0.0.1"]


def test_the_plugin_loads_no_broker_modules_until_used(tmp_path: Path) -> None:
    script = (
        "import sys, millstream.testing.plugin; print('millstream.node.node' in sys.modules, 'uvloop' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240, check=True)
    assert run.stdout.split() == ["False", "False"]
