"""What a command loads before it does anything: little, so that it answers at once."""

import subprocess
import sys

import pytest

HEAVY = ("asyncio", "ssl", "sqlite3", "rich.table", "kafka", "millstream.sdk", "millstream.wire", "millstream.records")


@pytest.mark.parametrize("heavy", HEAVY)
def test_the_commands_are_known_without_loading_what_they_need(heavy: str) -> None:
    program = f"import sys, millstream.cli.app; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
