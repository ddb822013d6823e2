"""Tests how a project is stopped, with another program in place of Spark's command."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import sys
from pathlib import Path
import pyspark
from millstream.spark.pipelines.project import run_project

place = Path(sys.argv[1])
pyspark.__file__ = str(place / "__init__.py")
run_project(place / "spark-pipeline.yml", master=None, settings={}, tell=print, log=None, grace_s=float(sys.argv[2]))
"""
STUBBORN = """#!/bin/sh
exec 3>heard
trap 'echo asked >&3' INT
echo begun >&3
seconds=0
while [ $seconds -lt 100 ]; do sleep 1; seconds=$((seconds + 1)); done
"""


@pytest.mark.parametrize(("grace_s", "signals", "code"), [(0, 1, -signal.SIGINT), (1_000, 2, 130)])
def test_a_project_is_killed_after_the_grace_period_or_at_the_second_signal(
    grace_s: float, signals: int, code: int, tmp_path: Path
) -> None:
    program = tmp_path / "bin" / "spark-pipelines"
    program.parent.mkdir()
    program.write_text(STUBBORN)
    program.chmod(0o755)
    os.mkfifo(tmp_path / "heard")
    with subprocess.Popen([sys.executable, "-c", RUN, str(tmp_path), str(grace_s)], stderr=subprocess.DEVNULL) as run:
        try:
            with (tmp_path / "heard").open() as heard:
                assert heard.readline() == "begun\n"
                run.send_signal(signal.SIGINT)
                if signals > 1:
                    assert heard.readline() == "asked\n"
                    run.send_signal(signal.SIGINT)
                assert heard.read() in ("", "asked\n")  # End of file: every process that had it open has ended.
            assert run.wait() == code
        finally:
            run.kill()
