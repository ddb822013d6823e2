"""Removes the build products of an earlier source layout, so that its modules can no longer be imported.

    python scripts/stale.py [ROOT]

Git removes sources that moved, but not their build products: compiled modules, bytecode, and the metadata of an
editable installation. Each of these keeps an old module name importable.
"""

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path


def clean(sources: Path) -> list[Path]:
    """Delete bytecode, metadata and compiled modules without a source, and the folders that this leaves empty."""
    compiled = [
        path
        for path in sources.rglob("*.cpython-*.so")
        if path.is_file() and not path.with_name(_source_name(path)).exists()
    ]
    caches = [path for path in sources.rglob("__pycache__") if path.is_dir() and not path.is_symlink()]
    made = [*caches, *sources.glob("*.egg-info")]
    for path in compiled:
        path.unlink()
    for path in made:
        shutil.rmtree(path, ignore_errors=True)
    for path in (*compiled, *caches):
        _remove_empty(path.parent, sources)
    return [*compiled, *made]


def _source_name(compiled: Path) -> str:
    return f"{compiled.name.split('.')[0]}.py"


def _remove_empty(folder: Path, sources: Path) -> None:
    """Delete a folder and those above it, up to `sources`, while they are empty."""
    while folder != sources and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def other_names(root: Path, installed: Iterator[Distribution] | None = None) -> list[str]:
    """Other distribution names under which this environment has an editable installation of `root`."""
    name = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
    found = {each.name for each in installed or distributions() if _source(each) == root.as_uri()}
    return sorted(found - {name})


def _source(distribution: Distribution) -> str | None:
    text = distribution.read_text("direct_url.json")
    url: str | None = json.loads(text)["url"] if text else None
    return url


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    names = other_names(root)
    if names:
        subprocess.run([sys.executable, "-m", "pip", "--quiet", "uninstall", "--yes", *names], check=True)
    clean(root / "src")
    for built in (root / "build").glob("lib*"):  # Otherwise a wheel would include what an earlier build left here.
        shutil.rmtree(built, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
