"""Tests that this package imports nothing of Millstream, because it proves what an independent client gets."""

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parent
OURS = ("millstream", "kafka", "builders")


@pytest.mark.parametrize("path", sorted(HERE.glob("*.py")), ids=lambda path: path.name)
def test_no_protocol_implementation_is_imported(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    assert [name for name in imported if name.partition(".")[0] in OURS] == []
    assert [name for name in imported if name.startswith("interop") and ".wire_alone" not in name] == []
