"""Checks that the generated reference of the SDK is up to date."""

import ast
from pathlib import Path

import pytest

import millstream
import reference

LONG = "a" * 100


def test_the_reference_is_up_to_date() -> None:
    assert reference.stale() == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(self, a: int, *, b: str = LIMIT) -> None: ...", "f(a: int, *, b: str = 7) -> None"),
        ("def f(a, *rest: int, **more: str): ...", "f(a, *rest: int, **more: str)"),
        ('def f(a: "pa.Table | None" = None) -> "pa.Table": ...', "f(a: pa.Table | None = None) -> pa.Table"),
        (
            f"def f({'a' * 50}: int, {'b' * 50}: int) -> None: ...",
            f"f(\n    {'a' * 50}: int,\n    {'b' * 50}: int,\n) -> None",
        ),
    ],
)
def test_a_signature_is_displayed_as_python_source(source: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(f"LIMIT = 7\n{source}\n", encoding="utf-8")
    module = reference.Module(path)
    function = module.tree.body[1]
    assert isinstance(function, ast.FunctionDef)
    assert reference.signature(function, module) == expected


def test_lazy_imports_of_the_package_match_its_type_checking_imports() -> None:
    tree = ast.parse(Path(millstream.__file__).read_text(encoding="utf-8"))
    imported = {
        name.asname: node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names
    }
    assert {name: home for name, home in imported.items() if name} == millstream._HOMES


def test_a_reference_to_an_undefined_class_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text("class There: ...\n", encoding="utf-8")
    module = reference.Module(path)
    assert [node.name for node in module.public(("There",))] == ["There"]
    with pytest.raises(LookupError, match=r"module\.py does not define Gone"):
        list(module.public(("There", "Gone")))


def test_every_public_class_of_the_package_is_in_the_reference() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in reference.TARGET.glob("*.md"))
    public = {name for name in millstream.__all__ if not name.startswith("Async") and name[0].isupper()}
    aliases = {name for name in public if not isinstance(getattr(millstream, name), type)}
    described = (reference.TARGET.parent / "sdk.md").read_text(encoding="utf-8")
    assert {name for name in aliases if f"| `{name}` |" not in described} == set()
    public -= aliases
    missing = {name for name in public if f"class `{name}`" not in pages}
    assert missing == {"ErrorCode", "MillstreamError"}, "these two have a page without a section of their own"
    assert "MillstreamError" in pages
