"""Checks every documented `pip install` line with a built wheel, in a clean environment.

The base package and its small extras are installed. The extras with Spark, which is over 400 MB, are only resolved.
"""

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
_WORD = r"(?:'[^']*'|\"[^\"]*\"|[\w\[\],.<>=-]+)"
_LINE = re.compile(rf"pip install ({_WORD}(?: {_WORD})*)")
_OWN = re.compile(r"millstream(?:\[(?P<extras>[^]]*)\])?")
_DIST = re.compile(r"^python3 -m (pip .*?) *(?:#.*)?$", flags=re.MULTILINE)
SMALL = {"arrow", "gateway"}


def documented() -> dict[str, list[str]]:
    """The arguments of every `pip install` line in the documentation, the examples and the hints of the code."""
    found: dict[str, list[str]] = {}
    code = [*sorted((ROOT / "examples").rglob("*.py")), *sorted((ROOT / "src").rglob("*.py"))]
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *code]:
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
WHEEL_LINE, INSTALL_LINE = _DIST.findall((ROOT / "docs" / "installation.md").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of the sources, in which the documented line has built `dist/`.

    The wheel has no compiled modules: it is built faster and installs the same.
    """
    folder = tmp_path_factory.mktemp("wheel") / "source"
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__"))
    shutil.copytree(ROOT / "proto", folder / "proto")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    command = [sys.executable, "-m", *shlex.split(WHEEL_LINE), "--quiet", "--no-build-isolation"]
    subprocess.run(command, check=True, timeout=WAIT_S, cwd=folder, env={**os.environ, "CC": "false"})
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    (found,) = source.glob("dist/*.whl")
    return found


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment without packages."""
    folder = tmp_path_factory.mktemp("clean")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=WAIT_S)
    return folder / "bin" / "python"


def run(*command: str, cwd: Path | None = None) -> str:
    """Runs a command without this project's sources, and returns its output."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, env=environment, cwd=cwd)
    assert ran.returncode == 0, ran.stderr
    assert "does not provide the extra" not in ran.stderr + ran.stdout, "pip only warns of an unknown extra"
    return ran.stdout


def pip(python: Path, *arguments: str) -> None:
    run(str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install", *arguments)


def test_the_documentation_has_install_lines() -> None:
    assert {"all", "spark", "spark-java", *SMALL} <= EXTRAS
    pages = {page for where in LINES.values() for page in where}
    assert {"docs/installation.md", "examples/arrow_tables.py", "src/millstream/spark/java.py"} <= pages


def test_documented_extras_are_quoted_for_every_shell() -> None:
    assert [line for line in LINES if "[" in re.sub(r"'[^']*'|\"[^\"]*\"", "", line)] == []


def test_every_documented_extra_exists(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    extras = set(re.findall(r"^Provides-Extra: (\S+)$", metadata, flags=re.MULTILINE))
    assert extras >= EXTRAS


def test_the_documented_install_lines_can_be_resolved(wheel: Path, clean: Path) -> None:
    others = [each for line in LINES for each in shlex.split(line) if not _OWN.fullmatch(each)]
    pip(clean, "--dry-run", f"{wheel}[{','.join(sorted(EXTRAS))}]", *others)


def test_the_wheel_installs_with_the_documented_line_and_runs(source: Path, clean: Path) -> None:
    line = f"{shlex.quote(str(clean))} -m {INSTALL_LINE} --quiet --disable-pip-version-check"
    run("bash", "-c", line, cwd=source)
    assert "0.1.0" in run(str(clean.parent / "millstream"), "--version")


def test_the_small_extras_install_and_can_be_imported(wheel: Path, clean: Path) -> None:
    pip(clean, f"{wheel}[{','.join(sorted(SMALL))}]")
    run(str(clean), "-c", "import pyarrow, millstream, millstream.gateway.process, millstream.gateway.grpc.server")
