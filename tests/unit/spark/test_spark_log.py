"""What of Spark's noise reaches people."""

import json

import pytest

from penstock.spark.pipelines.spark_log import Sieve, as_logged

HANGING_UP = [
    "Traceback (most recent call last):",
    '  File "/somewhere/pyspark.zip/pyspark/daemon.py", line 264, in manager',
    "BrokenPipeError: [Errno 32] Broken pipe",
]
OWN = ["Traceback (most recent call last):", '  File "my_udf.py", line 2, in f', "ValueError: of no use"]


def logged(level: str, who: str, text: str, trace: str = "") -> str:
    return json.dumps({"spark": who, "level": level, "time": "2026-01-31T12:00:00,000", "text": text, "trace": trace})


def passed(*lines: str) -> list[str]:
    sieve = Sieve()
    return [told for line in lines for told in sieve.pass_line(line)]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([logged("WARN", "HDFSBackedStateStore", "it is slow\nvery")], ["spark: it is slow"]),
        ([logged("WARN", "X", "long " * 100)], ["spark: " + ("long " * 100)[:399] + "…"]),
        ([logged("WARN", "NativeCodeLoader", "no native library")], []),
        ([logged("ERROR", "MicroBatchExecution", "failed", "at java")], []),
        (["printed by a program"], ["printed by a program"]),
        (['{"spark":'], ['{"spark":']),
        (["WARNING: Using incubator modules: jdk.incubator.vector"], []),
        (HANGING_UP, []),
        ([*HANGING_UP, "", "During handling of the above exception, another exception occurred:", "", *HANGING_UP], []),
        ([*HANGING_UP, "", "printed"], ["printed"]),
        (OWN, OWN),
        ([*OWN[:2], logged("ERROR", "Utils", "Aborting task"), *OWN[2:]], OWN),
        (["a", "", "b"], ["a", "", "b"]),
    ],
)
def test_warnings_and_what_programs_print_pass_and_what_everybody_gets_does_not(
    lines: list[str], told: list[str]
) -> None:
    assert passed(*lines) == told


def test_the_log_has_all_of_it_as_people_know_it() -> None:
    line = logged("ERROR", "Executor", "Exception in task", "java.lang.Error\n\tat here\n")
    assert as_logged(line) == "2026-01-31T12:00:00,000 ERROR Executor: Exception in task\njava.lang.Error\n\tat here"
    assert as_logged("printed") == "printed"
