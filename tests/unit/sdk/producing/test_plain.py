"""Runs the producer's tests with the plain Python versions of the compiled modules."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import millstream
from millstream.sdk.producing import chunk, row_partitioning

HERE = Path(__file__).parent


def test_compiled_flag_matches_the_loaded_modules() -> None:
    for module in (chunk, row_partitioning):
        assert (Path(str(module.__file__)).suffix == ".so") == module.COMPILED


def test_producer_tests_pass_with_plain_python_modules(tmp_path: Path) -> None:
    if not chunk.COMPILED:
        return  # This is the run with plain modules.
    source = Path(str(millstream.__file__)).parent
    shutil.copytree(
        source, tmp_path / "millstream", ignore=shutil.ignore_patterns("chunk.*.so", "row_partitioning.*.so")
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:xdist", str(HERE)],
        cwd=HERE.parents[3],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    program = (
        "from millstream.sdk.producing import chunk, row_partitioning\n"
        "print(chunk.COMPILED or row_partitioning.COMPILED)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=100, check=True
    )
    assert printed.stdout.strip() == "False"
