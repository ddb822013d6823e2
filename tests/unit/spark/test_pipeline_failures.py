"""Tests that a failure reported by Spark is reduced to its cause and the line in the user's file."""

from pathlib import Path

import pytest

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.spark.pipelines.failures import pipeline_error, told
from millstream.spark.pipelines.python_file import compiled, run_python

JAVA = (
    "\n\tat org.apache.spark.sql.errors.QueryCompilationErrors$.pythonDataSourceError(Errors.scala:2576)\n\tat x.Y(Z)"
)
SOURCE = (
    "org.apache.spark.SparkException: [PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n"
    '  File "/site/millstream/spark/survey.py", line 65, in _named\n'
    "    raise refusal(number)\n"
    "millstream.model.errors.MillstreamError: UNKNOWN_TOPIC_OR_PARTITION: topic 'o': there is no such topic here\n"
    " SQLSTATE: 38000" + JAVA
)
FUNCTION = (
    "org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] Thrown: Traceback (most recent call last):\n"
    '  File "/home/me/job.py", line 7, in f\n'
    "    1 / 0\n"
    "    ~~^~~\n"
    "ZeroDivisionError: division by zero\n"
    " SQLSTATE: 38000" + JAVA
)
DISK = FUNCTION.replace(
    "ZeroDivisionError: division by zero", "OSError: [Errno 28] No space left on device: '/backup/a.parquet'"
)
STREAM = (
    "[STREAM_FAILED] Query [id = 75, runId = 93] terminated with exception: [SOME.CONDITION] it is so SQLSTATE: 38000"
    " SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: x"
)
COLUMN = (
    "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `no` cannot be resolved. SQLSTATE: 42703; line 3 pos 7;\n"
    "'Project ['no]\n+- SubqueryAlias orders\n"
)
SYNTAX = (
    "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'SELCT'. SQLSTATE: 42601 (line 3, pos 0)\n\n== SQL ==\nSELCT 1\n"
)
CALL = "An error occurred while calling o34.save.\n: org.apache.spark.SparkException: Job aborted" + JAVA


@pytest.mark.parametrize(
    ("said", "where", "code", "text"),
    [
        (SOURCE, "query q", "UNKNOWN_TOPIC_OR_PARTITION", "query q: topic 'o': there is no such topic here"),
        (FUNCTION, "query q", "PIPELINE_FAILED", "query q (job.py, line 7): ZeroDivisionError: division by zero"),
        (FUNCTION, "job.py, line 9", "PIPELINE_FAILED", "job.py, line 9: ZeroDivisionError: division by zero"),
        (DISK, "job.py, line 9", "PIPELINE_FAILED", "job.py, line 9: /backup/a.parquet: No space left on device"),
        (STREAM, "query q", "PIPELINE_FAILED", "query q: it is so"),
        (
            COLUMN,
            "r.sql, line 2",
            "PIPELINE_FAILED",
            "r.sql, line 2: A column with name `no` cannot be resolved (line 3)",
        ),
        (COLUMN, "r.sql, line 3", "PIPELINE_FAILED", "r.sql, line 3: A column with name `no` cannot be resolved"),
        (SYNTAX, "r.sql, line 3", "PIPELINE_FAILED", "r.sql, line 3: Syntax error at or near 'SELCT'"),
        (CALL, "job.py, line 9", "PIPELINE_FAILED", "job.py, line 9: Job aborted"),
    ],
)
def test_sparks_error_text_is_reduced_to_its_cause(said: str, where: str, code: str, text: str) -> None:
    error = told(said, where, Path("/home/me/job.py"))
    assert (error.code, error.detail, error.trace) == (ErrorCode[code], text, said)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("x = 1\nraise ValueError('of no use')", "job.py, line 2: ValueError: of no use"),
        ("def f():\n    raise KeyError\nf()", "job.py, line 2: KeyError"),
        ("import sys\nsys.exit(3)", "job.py, line 2: SystemExit: 3"),
    ],
)
def test_an_exception_of_the_file_is_reported_with_its_line(source: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text(source)
    with pytest.raises(MillstreamError) as caught:
        run_python(file, compiled(file), [], {})
    assert caught.value.detail == text


@pytest.mark.parametrize(
    "source", ["import sys\nsys.exit(0)", "import sys\nassert sys.argv[1:] == ['a']\nassert told == 5"]
)
def test_a_file_runs_as_main_with_its_names_and_arguments(source: str, tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text(source + "\nassert __name__ == '__main__'")
    run_python(file, compiled(file), ["a"], {"told": 5})


@pytest.mark.parametrize("source", [b"x = 1\ndef f(:\n", b"x = 1\n\x00"])
def test_invalid_python_is_reported_before_anything_runs(source: bytes, tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_bytes(source)
    with pytest.raises(MillstreamError, match=r"^\w+: job\.py"):
        compiled(file)


def test_a_millstream_error_keeps_its_code() -> None:
    error = pipeline_error(MillstreamError(ErrorCode.TOPIC_ALREADY_EXISTS, "it is there"), "job.py", Path("job.py"))
    assert (error.code, error.detail) == (ErrorCode.TOPIC_ALREADY_EXISTS, "job.py: it is there")
