"""Tests which lines of Spark's output are shown to the user."""

import json
import signal
import subprocess
from io import StringIO
from typing import Any

import pytest
from pyspark import java_gateway

from millstream.spark.pipelines.spark_log import LogFilter, SparkLog, as_logged

HANGING_UP = [
    "Traceback (most recent call last):",
    '  File "/somewhere/pyspark.zip/pyspark/daemon.py", line 264, in manager',
    "BrokenPipeError: [Errno 32] Broken pipe",
]
OWN = ["Traceback (most recent call last):", '  File "my_udf.py", line 2, in f', "ValueError: of no use"]


def logged(level: str, who: str, text: str, trace: str = "") -> str:
    said = {"spark": who, "level": level, "time": "2026-01-31T12:00:00,000", "text": text, "trace": trace}
    return json.dumps(said, separators=(",", ":"))


def logged_by_python(level: str, text: str) -> str:
    return json.dumps({"ts": "2026-01-31 12:00:00,000", "level": level, "logger": "X", "msg": text, "context": {}})


def passed(*lines: str) -> list[str]:
    sieve = LogFilter()
    return [told for line in lines for told in sieve.pass_line(line)]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([logged("WARN", "HDFSBackedStateStore", "it is slow\nvery")], ["spark: it is slow"]),
        ([logged("WARN", "X", "long " * 100)], ["spark: " + ("long " * 100)[:399] + "…"]),
        ([logged("WARN", "NativeCodeLoader", "no native library")], []),
        ([logged("ERROR", "MicroBatchExecution", "failed", "at java")], []),
        (["printed by a program"], ["printed by a program"]),
        (['{"spark":"'], ['{"spark":"']),
        (['{"ts": "mine"}'], ['{"ts": "mine"}']),
        ([logged_by_python("WARNING", "not released")], ["spark: not released"]),
        ([logged_by_python("ERROR", "[UNRESOLVED_COLUMN]")], []),
        (["Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties"], []),
        (["26/01/31 12:00:00 WARN Utils: Your hostname, vm, resolves to a loopback address"], []),
        (["26/01/31 12:00:00 WARN SparkConf: it is old"], ["spark: it is old"]),
        (["WARNING: Using incubator modules: jdk.incubator.vector"], []),
        (
            ['Exception in thread "main" org.apache.spark.SparkException: no such master', "\tat org.apache.A.b(A:1)"],
            ["spark: no such master"],
        ),
        (HANGING_UP, []),
        ([*HANGING_UP, "", "During handling of the above exception, another exception occurred:", "", *HANGING_UP], []),
        ([*HANGING_UP, "", "printed"], ["printed"]),
        (OWN, OWN),
        ([*OWN[:2], logged("ERROR", "Utils", "Aborting task"), *OWN[2:]], OWN),
        (["a", "", "b"], ["a", "", "b"]),
    ],
)
def test_warnings_and_printed_lines_are_shown_but_common_noise_is_not(lines: list[str], told: list[str]) -> None:
    assert passed(*lines) == told


def test_the_log_file_has_every_event_in_sparks_usual_format() -> None:
    line = logged("ERROR", "Executor", "Exception in task", "java.lang.Error\n\tat here\n")
    assert as_logged(line) == "2026-01-31T12:00:00,000 ERROR Executor: Exception in task\njava.lang.Error\n\tat here"
    assert as_logged("printed") == "printed"


def test_an_interrupted_start_leaves_no_process() -> None:
    gateway: Any = java_gateway
    with pytest.raises(KeyboardInterrupt), SparkLog(print, None).starting():  # noqa: PT012  # The block is interrupted.
        process = gateway.Popen(["sleep", "3600"])
        assert process.poll() is None
        raise KeyboardInterrupt
    assert process.returncode == -signal.SIGKILL
    assert gateway.Popen is subprocess.Popen


def test_a_log_event_inside_an_unfinished_printed_line_is_separated() -> None:
    told: list[str] = []
    warning = logged("WARN", "X", "slow")
    lines = [f"Flow a is RUNNING.{warning}", "", f"Flow b is RUNNING.{logged('WARN', 'HiveConf', '')}", "", "", "end"]
    SparkLog(told.append, None).read(f"{line}\n" for line in lines)
    assert told == ["Flow a is RUNNING.", "spark: slow", "Flow b is RUNNING.", "", "end"]


def test_spark_output_is_hidden_but_still_logged_when_the_run_is_ending() -> None:
    told: list[str] = []
    log = StringIO()
    spark_log = SparkLog(told.append, log)
    spark_log.read(["one\n", logged("WARN", "X", "two") + "\n"])
    spark_log.is_hushed = True
    spark_log.read(["three\n"])
    assert told == ["one", "spark: two"]
    assert log.getvalue() == "one\n2026-01-31T12:00:00,000 WARN X: two\nthree\n"
