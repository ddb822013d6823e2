"""Generates Python modules from the published gRPC contract: proto/millstream_api/v1 -> src/millstream/gateway/grpc/v1.

    scripts/proto.py           write the modules
    scripts/proto.py --check   fail and name the files that are out of date

The generated modules import one another from the package that contains them, not from the package that the contract
names. So code that users generate from the contract can use that name.
"""

import re
import sys
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory

from grpc_tools import protoc

ROOT = Path(__file__).parent.parent
PROTO = ROOT / "proto"
SOURCE = PROTO / "millstream_api" / "v1"
TARGET = ROOT / "src" / "millstream" / "gateway" / "grpc" / "v1"
BY_HAND = {"__init__.py"}

_PLUGINS = ("mypy", "mypy_grpc")
_IMPORT = re.compile(r"^from millstream_api\.v1 import ", flags=re.MULTILINE)
_SERVICE = re.compile(r"^service ", flags=re.MULTILINE)


def run_protoc(*arguments: str) -> None:
    """Run protoc on the whole contract. Raise RuntimeError if it fails; standard error has the reason."""
    names = [str(path.relative_to(PROTO)) for path in sorted(SOURCE.glob("*.proto"))]
    with as_file(files("grpc_tools") / "_proto") as well_known:
        command = ["protoc", f"--proto_path={PROTO}", f"--proto_path={well_known}", *arguments, *names]
        if protoc.main(command):
            raise RuntimeError("protoc rejected the contract; see its output above")


def expected() -> dict[Path, str]:
    """The expected content of each generated file."""
    programs = Path(sys.executable).parent
    plugins = [f"--plugin=protoc-gen-{name}={programs / f'protoc-gen-{name}'}" for name in _PLUGINS]
    with TemporaryDirectory() as made:
        outputs = [f"--{name}_out={made}" for name in ("python", "grpc_python")]
        run_protoc(*plugins, *outputs, *(f"--{name}_out=quiet:{made}" for name in _PLUGINS))
        return {
            TARGET / path.name: _IMPORT.sub("from millstream.gateway.grpc.v1 import ", path.read_text(encoding="utf-8"))
            for path in sorted(Path(made, "millstream_api", "v1").iterdir())
            if _is_needed(path)
        }


def _is_needed(path: Path) -> bool:
    """Return False for gRPC modules of files without a service, which have nothing to call."""
    source, kind = path.stem.rsplit("_pb2", 1)
    return not kind or bool(_SERVICE.search((SOURCE / f"{source}.proto").read_text(encoding="utf-8")))


def stale() -> list[Path]:
    """The files that are missing, out of date or obsolete."""
    wanted = expected()
    there = {path for path in TARGET.glob("*.py*") if path.is_file() and path.name not in BY_HAND}
    changed = {path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text}
    return sorted(changed | (there - wanted.keys()))


def main() -> int:
    if sys.argv[1:] == ["--check"]:
        found = stale()
        for path in found:
            print(f"{path.relative_to(ROOT)} is out of date: run scripts/proto.py", file=sys.stderr)
        return 1 if found else 0
    for path, text in expected().items():
        path.write_text(text, encoding="utf-8")
    for path in stale():
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
