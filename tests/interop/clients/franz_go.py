"""Drives franz-go, the client in pure Go, which uses the newest version of each request."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.building import built, run
from bench.peers import ROOT

from interop.clients.servant import ServantClient


class FranzGoClient(ServantClient):
    name = "franz-go"

    def command(self) -> Sequence[str]:
        return [str(build() / "servant")]


def build() -> Path:
    """Build the program and return its directory."""
    return built(ROOT / "tests" / "interop" / "go", ("go",), _make)


def _make(sources: Path, directory: Path) -> None:
    go = compiler(sources)
    run(go, "build", "-mod=readonly", "-buildvcs=false", "-o", str(directory / "servant"), cwd=sources)


def compiler(sources: Path) -> str:
    """Return a Go compiler that is new enough: the one on the path, or one downloaded as a Go toolchain module."""
    found = re.search(r"^go (\S+)$", (sources / "go.mod").read_text(), flags=re.MULTILINE)
    assert found
    wanted = found[1]
    said = subprocess.run(["go", "env", "GOVERSION", "GOOS", "GOARCH"], capture_output=True, text=True, check=True)
    version, system, processor = said.stdout.split()
    if _numbers(version) >= _numbers(wanted):
        return "go"
    module = f"golang.org/toolchain@v0.0.1-go{wanted}.{system}-{processor}"
    run("go", "mod", "download", module)
    cache = subprocess.run(["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=True).stdout.strip()
    home = Path(cache) / module
    # The files of a Go module are not executable.
    for program in (*(home / "bin").iterdir(), *(home / "pkg" / "tool").rglob("*")):
        program.chmod(0o755)
    return str(home / "bin" / "go")


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
