"""Tests a signal while Spark starts, with another program in place of Java."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.cli.failures import EXIT_FAILED, EXIT_TERMINATED
from millstream.cli.main import EXIT_INTERRUPTED

RUN = """
import sys
from pyspark import java_gateway
from millstream.cli.main import main
from millstream.spark.pipelines import pipeline_run

def session(*words, **options):
    java = java_gateway.Popen(["sh", "-c", "trap '' INT TERM; echo begun; exec sleep 3600"])
    if sys.argv.pop() == "deaf":
        try:
            java.wait()
        except KeyboardInterrupt:
            return None
    java.wait()

pipeline_run.session = session
main()
"""

REFUSED = """
from py4j.protocol import Py4JError
from millstream.cli.main import main
from millstream.spark.pipelines import pipeline_run

def session(*words, **options):
    raise Py4JError("An error occurred while calling x.\\n: java.io.IOException: it is stopped\\n\\tat x.Y(Z)")

pipeline_run.session = session
main()
"""


def test_a_master_that_refuses_the_application_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    words = [sys.executable, "-c", REFUSED, "pipeline", "run", str(tmp_path / "a.py"), "--master", "spark://h:1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_FAILED
    assert "millstream: Spark on spark://h:1: it is stopped\n" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("how", ["hearing", "deaf"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, EXIT_INTERRUPTED), (signal.SIGTERM, EXIT_TERMINATED)])
def test_a_signal_while_spark_starts_ends_all_processes(
    number: signal.Signals, code: int, how: str, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("raise AssertionError")
    words = [sys.executable, "-c", RUN, "pipeline", "run", str(tmp_path / "a.py"), how]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        assert run.stdout is not None
        assert "begun\n" in iter(run.stdout.readline, "")
        run.send_signal(number)
        assert run.stdout.read() == ""  # End of file: every process that had it open has ended.
        assert run.wait() == code
