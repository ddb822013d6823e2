"""Tests that the command line starts without importing heavy modules, so that commands are fast."""

import subprocess
import sys

import pytest

HEAVY = ("asyncio", "ssl", "sqlite3", "rich.table", "kafka", "millstream.sdk", "millstream.wire", "millstream.records")


@pytest.mark.parametrize("heavy", HEAVY)
def test_registering_the_commands_imports_no_heavy_module(heavy: str) -> None:
    program = f"import sys, millstream.cli.app; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
