"""Checks that the codec is compiled where possible, and runs as plain Python otherwise."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from setuptools import Distribution, Extension

from millstream import records
from millstream.records import record_decoder
from millstream.records.compiled import COMPILED
from millstream.records.header import HEADER_BYTES

ROOT = Path(__file__).parents[3]


def load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The setup script, run in an empty directory instead of the project."""
    module = load("millstream_setup", ROOT / "setup.py")
    (tmp_path / module.RECORDS).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return module


def test_the_package_reports_whether_the_codec_is_compiled() -> None:
    suffix = Path(str(record_decoder.__file__)).suffix
    assert (suffix == ".so") == COMPILED


def test_the_plain_codec_runs_without_cython(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cython", None)
    folder = Path(str(records.__file__)).parent
    names = ("record_encoder", "record_decoder", "record_keys", "produced_batch", "record_walk", "message")
    encode, decode, keys, produced, walk, message = (load(f"without{name}", folder / f"{name}.py") for name in names)
    assert not any(module.COMPILED for module in (encode, decode, keys, produced, walk, message))
    made = encode.encode_records([b"value", None], [None, b"key"], None, [5, 3], 5, None, HEADER_BYTES)
    found, _ = decode.decode_records(made[HEADER_BYTES:], 2, 0, 1, 5, None, 1000)
    assert found == [(0, 5, None, b"value", ()), (1, 3, b"key", None, ())]
    assert keys.keyless_records(made[HEADER_BYTES:], 2, 1) == [0]
    assert walk.walk_records(made, HEADER_BYTES, 2, 5) == (3, 5, 1)
    assert produced.usual_header(memoryview(made), 1000, 5, 0, 0) is None, "its header was never filled in"


def test_arrow_is_imported_only_when_it_is_used() -> None:
    script = "import sys, millstream.records.batch; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=100, check=False).returncode == 0


def test_the_package_is_installed_as_plain_python_without_cython(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "Cython.Build", None)
    with pytest.warns(UserWarning, match="will be slower"):
        assert setup.extensions() == []


def test_a_failed_compilation_leaves_the_plain_codec(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stale = tmp_path / setup.RECORDS / "record_decoder.cpython-311-x86_64-linux-gnu.so"
    stale.write_bytes(b"compiled from an older source")
    (tmp_path / "broken.c").write_text("this is not C")
    monkeypatch.setenv("CC", "false")
    build = setup.OptionalBuild(Distribution({"ext_modules": [Extension("broken", ["broken.c"])]}))
    build.build_lib = build.build_temp = str(tmp_path / "build")
    build.ensure_finalized()
    with pytest.warns(UserWarning, match="will be slower"):
        build.run()
    assert not stale.exists()


def quick_compiler(directory: Path) -> Path:
    """The system's compiler without optimization, which takes a quarter of the time."""
    script = directory / "quick-cc"
    script.write_text('#!/bin/sh\nexec cc "$@" -O0\n')
    script.chmod(0o755)
    return script


def test_a_wheel_contains_the_compiled_codec_and_all_runtime_files(tmp_path: Path) -> None:
    source, installed = tmp_path / "source", tmp_path / "installed"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__"))
    shutil.copytree(ROOT / "proto", source / "proto")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = (sys.executable, "-m", "pip", "--quiet", "install", "--no-build-isolation", "--no-deps", "--no-index")
    quickly = {**os.environ, "CC": str(quick_compiler(tmp_path))}
    subprocess.run([*pip, "--target", str(installed), str(source)], check=True, timeout=280, env=quickly)
    program = (
        "import millstream.records.compiled, millstream.wire.messages as messages\n"
        "messages.key_of('Info')  # from a schema file of ours\n"
        "from millstream.sdk.producing import chunk, row_partitioning\n"
        "is_compiled = millstream.records.compiled.COMPILED and chunk.COMPILED and row_partitioning.COMPILED\n"
        "print(is_compiled, millstream.records.__file__)"
    )
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["True", str(installed / "millstream" / "records" / "__init__.py")]
    assert (installed / "millstream" / "py.typed").exists()
    assert (installed / "millstream" / "gateway" / "proto" / "millstream_api" / "v1" / "messages.proto").exists()
