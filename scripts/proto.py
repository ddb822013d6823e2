"""Write what Python needs of the published contract: proto/millstream_api/v1 -> src/millstream/gateway/grpc/v1.

    scripts/proto.py           write it
    scripts/proto.py --check   fail, naming the files, when they are not what this would write

The generated modules import one another from the package they lie in, not from the one that the contract names, so
that this one may have all of the name to itself.
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
    """Over all of the contract; RuntimeError when that is refused, and standard error says why."""
    names = [str(path.relative_to(PROTO)) for path in sorted(SOURCE.glob("*.proto"))]
    with as_file(files("grpc_tools") / "_proto") as well_known:
        command = ["protoc", f"--proto_path={PROTO}", f"--proto_path={well_known}", *arguments, *names]
        if protoc.main(command):
            raise RuntimeError("protoc refused the contract")


def expected() -> dict[Path, str]:
    """What should be there, by path."""
    programs = Path(sys.executable).parent
    plugins = [f"--plugin=protoc-gen-{name}={programs / f'protoc-gen-{name}'}" for name in _PLUGINS]
    with TemporaryDirectory() as made:
        outputs = [f"--{name}_out={made}" for name in ("python", "grpc_python")]
        run_protoc(*plugins, *outputs, *(f"--{name}_out=quiet:{made}" for name in _PLUGINS))
        return {
            TARGET / path.name: _IMPORT.sub("from millstream.gateway.grpc.v1 import ", path.read_text(encoding="utf-8"))
            for path in sorted(Path(made, "millstream_api", "v1").iterdir())
            if _is_of_use(path)
        }


def _is_of_use(path: Path) -> bool:
    """Where there is no service, there is nothing to call."""
    source, kind = path.stem.rsplit("_pb2", 1)
    return not kind or bool(_SERVICE.search((SOURCE / f"{source}.proto").read_text(encoding="utf-8")))


def stale() -> list[Path]:
    """The files that are not what they should be, and those that should not be at all."""
    wanted = expected()
    there = {path for path in TARGET.glob("*.py*") if path.is_file() and path.name not in BY_HAND}
    changed = {path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text}
    return sorted(changed | (there - wanted.keys()))


def main() -> int:
    if sys.argv[1:] == ["--check"]:
        found = stale()
        for path in found:
            print(f"{path.relative_to(ROOT)} is not fresh: run scripts/proto.py", file=sys.stderr)
        return 1 if found else 0
    for path, text in expected().items():
        path.write_text(text, encoding="utf-8")
    for path in stale():
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
