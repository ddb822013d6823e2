"""What holds for the compiled modules holds for the plain ones: the tests here are run with those too."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import millstream
from millstream.sdk.producing import chunk, row_partitioning

HERE = Path(__file__).parent


def test_it_is_told_whether_the_modules_are_compiled() -> None:
    for module in (chunk, row_partitioning):
        assert (Path(str(module.__file__)).suffix == ".so") == module.COMPILED


def test_the_tests_of_the_producer_pass_with_the_modules_as_plain_python(tmp_path: Path) -> None:
    if not chunk.COMPILED:
        return  # This is that run.
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
    told = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=100, check=True
    )
    assert told.stdout.strip() == "False"
