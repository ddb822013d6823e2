"""Checks every `pip install` line of the documentation against a built wheel, in a clean environment."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WAIT_S = 280
_LINE = re.compile(r"pip install ((?:'[^']*'|\"[^\"]*\"|[\w\[\],.<>=-]+)(?: (?:'[^']*'|\"[^\"]*\"|[\w\[\],.<>=-]+))*)")
_OWN = re.compile(r"millstream(?:\[(?P<extras>[^]]*)\])?")


def documented() -> dict[str, list[str]]:
    """The arguments of every `pip install` line in README and docs, with the pages that have it."""
    found: dict[str, list[str]] = {}
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for line in page.read_text(encoding="utf-8").splitlines():
            for match in _LINE.finditer(line.partition("  #")[0]):
                if "dist/" not in line:
                    found.setdefault(match[1].strip(), []).append(str(page.relative_to(ROOT)))
    return found


LINES = documented()
EXTRAS = {
    extra
    for line in LINES
    for each in shlex.split(line)
    if (own := _OWN.fullmatch(each)) and own["extras"]
    for extra in own["extras"].split(",")
}
"""They are resolved together, because each resolution downloads PySpark."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the sources without compiled modules, which is built faster and installs the same."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__"))
    shutil.copytree(ROOT / "proto", source / "proto")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-build-isolation", "--no-deps"]
    environment = {**os.environ, "CC": "false"}
    subprocess.run([*command, "-w", str(folder), str(source)], check=True, timeout=WAIT_S, env=environment)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment without packages."""
    folder = tmp_path_factory.mktemp("clean")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=WAIT_S)
    return folder / "bin" / "python"


def pip(python: Path, *arguments: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, env=environment)
    assert ran.returncode == 0, ran.stderr
    assert "does not provide the extra" not in ran.stderr + ran.stdout, "pip only warns of an unknown extra"


def test_the_documentation_has_install_lines() -> None:
    assert {"all", "spark", "gateway"} <= EXTRAS


def test_every_documented_extra_exists(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    extras = set(re.findall(r"^Provides-Extra: (\S+)$", metadata, flags=re.MULTILINE))
    assert extras >= EXTRAS


def test_the_documented_install_lines_can_be_resolved(wheel: Path, clean: Path) -> None:
    others = [each for line in LINES for each in shlex.split(line) if not _OWN.fullmatch(each)]
    pip(clean, "--dry-run", f"{wheel}[{','.join(sorted(EXTRAS))}]", *others)


def test_the_base_package_installs_and_runs(wheel: Path, clean: Path) -> None:
    pip(clean, str(wheel))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [str(clean.parent / "millstream"), "--version"], capture_output=True, text=True, timeout=WAIT_S, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    assert "0.1.0" in ran.stdout
