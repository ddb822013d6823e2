"""Builds a Go client that is generated from the published gRPC contract."""

from pathlib import Path

from bench.building import built, run
from bench.peers import ROOT

import proto
from interop.clients.franz_go import compiler

_FILES = ("go.mod", "go.sum", "main.go")


def build() -> Path:
    """Build the program and return its directory."""
    return built(ROOT / "tests" / "interop" / "grpc_go", ("go",), _make, *sorted(proto.SOURCE.glob("*.proto")))


def _make(sources: Path, directory: Path) -> None:
    module = directory / "module"
    module.mkdir()
    for name in _FILES:
        (module / name).write_text((sources / name).read_text())
    go = compiler(sources)
    plugins = directory / "plugins"
    run(go, "build", "-mod=readonly", "-buildvcs=false", "-o", f"{plugins}/", "tool", cwd=module)
    arguments = []
    for name in ("go", "go-grpc"):
        arguments += [f"--plugin=protoc-gen-{name}={plugins / f'protoc-gen-{name}'}"]
        arguments += [f"--{name}_out={module}", f"--{name}_opt=module=millstream"]
    proto.run_protoc(*arguments)
    run(go, "build", "-mod=readonly", "-buildvcs=false", "-o", str(directory / "client"), cwd=module)
