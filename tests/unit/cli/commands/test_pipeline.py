"""Tests the parts of `millstream pipeline` that do not start Spark."""

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import SparkContext
from typer.testing import CliRunner

from millstream.cli import spark
from millstream.cli.app import app
from millstream.cli.commands import pipeline, pipeline_archive
from millstream.cli.commands.pipeline_archive import ArchiveView
from millstream.cli.views.pipeline_view import PipelineView
from millstream.spark.archive import ArchiveProgress
from millstream.spark.pipelines.query_monitor import QueryState
from millstream.spark.pipelines.templates import TEMPLATES


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MILLSTREAM_CLIENT_CONFIG", "/nowhere/at/all")
    monkeypatch.setenv("MILLSTREAM_BOOTSTRAP", "127.0.0.1:1")  # The command sets it; the fixture restores it.


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["pipeline", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def test_every_template_is_listed_with_its_purpose() -> None:
    _, output, _ = run("init", "--list")
    assert all(each.name in output and each.purpose in output for each in TEMPLATES)
    assert json.loads(run("init", "--list", "--json")[1])[0]["template"] == TEMPLATES[0].name


@pytest.mark.parametrize("template", [each.name for each in TEMPLATES])
def test_init_writes_files_with_the_name_and_the_topic(template: str) -> None:
    code, output, _ = run("init", "shop-one", "-t", template, "--topic", "sales")
    assert code == 0
    made = [path for path in Path().rglob("*") if path.is_file()]
    assert made
    for path in made:
        assert f"{path}\n" in output
        text = path.read_text()
        assert not {"my_pipeline", "orders", "STORAGE"} & set(text.replace('"', " ").replace("'", " ").split())
        if path.suffix == ".py":
            compile(text, path.name, "exec")
    assert any("sales" in path.read_text() for path in made)
    before = {path: path.read_text() for path in made}
    code, _, errors = run("init", "shop-one", "-t", template)
    assert (code, "already exists; nothing was written" in errors) == (1, True)
    assert {path: path.read_text() for path in Path().rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("template", [each.name for each in TEMPLATES])
def test_init_accepts_names_that_occur_in_the_templates(template: str) -> None:
    topic = "my_pipeline.orders.STORAGE"
    assert run("init", "plain", "-t", template, "--topic", topic)[0] == 0
    plain = {path: path.read_text() for path in Path().rglob("*") if path.is_file()}
    assert any(topic in text for text in plain.values())
    assert run("init", "STORAGE-orders", "-t", template, "--topic", topic)[0] == 0
    for path, text in plain.items():
        assert Path(str(path).replace("plain", "STORAGE-orders")).read_text() == text.replace("plain", "STORAGE-orders")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "give a name for the pipeline, or --list"),
        (("shop", "--list"), "give a name for the pipeline, or --list"),
        (("shop", "-t", "none"), "unknown template 'none' (accepted: transform, count"),
        *(
            (("--", name), "expected a name of 1 to 100 letters")
            for name in ("../shop", "é", "-x", "1x", "x" * 101, "x\n")
        ),
        (("orders",), "'orders': the topic that the pipeline reads has this name"),
        (("shop", "--topic", "shop"), "'shop': the topic that the pipeline reads has this name"),
        (("shop", "--topic", "a b"), "a b"),
    ],
)
def test_init_refuses_invalid_arguments(arguments: tuple[str, ...], text: str) -> None:
    code, _, errors = run("init", *arguments)
    assert code != 0
    assert text in errors
    assert not list(Path().iterdir())


@pytest.mark.parametrize(
    ("name", "source", "arguments", "code", "text"),
    [
        ("none.py", None, (), 2, "none.py: No such file or directory"),
        ("a.txt", "", (), 2, "a.txt: expected a Python file (.py) or a SQL file (.sql)"),
        ("a.py", "def f(:", (), 1, "a.py, line 1: invalid syntax: def f(:"),
        ("a.sql", "SELECT 1", ("x",), 2, "only Python files take arguments"),
        ("a.py", "", ("--conf", "x"), 2, "--conf 'x': expected NAME=VALUE"),
        ("a.py", "", ("-b", "bad:host:x"), 2, "'bad:host:x' is not a broker address (expected host:port)"),
        (".", None, (), 2, "there is no spark-pipeline.yml"),
        ("spark-pipeline.yml", "", ("--master", "spark://host:7077"), 2, "cannot run a project"),
    ],
)
def test_run_reports_mistakes_before_spark_starts(
    name: str, source: str | None, arguments: tuple[str, ...], code: int, text: str
) -> None:
    if source is not None:
        Path(name).write_text(source)
    found, _, errors = run("run", name, *arguments)
    assert (found, text in errors) == (code, True), errors


def test_a_log_file_that_cannot_be_written_is_reported() -> None:
    Path("a.py").write_text("")
    words = [sys.executable, "-m", "millstream.cli", "pipeline", "run", "a.py", "--log", "none/spark.log"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "millstream: none/spark.log: No such file or directory\n")


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    pretended = SimpleNamespace(spark=None, wait=lambda: None)
    monkeypatch.setattr(pipeline, "pipeline_started", lambda *arguments: nullcontext(pretended))


@pytest.mark.usefixtures("without_spark")
def test_arguments_after_two_dashes_are_passed_to_the_file() -> None:
    Path("a.py").write_text("import sys\nprint(sys.argv[1:])")
    assert run("run", "a.py", "--once", "--", "--day", "3", "--once")[:2] == (0, "['--day', '3', '--once']\n")
    assert run("run", "a.py", "--day", "3")[0] == 2
    assert "FILE.py --once -- --day 3" in " ".join(run("run", "--help")[1].split())


@pytest.mark.usefixtures("without_spark")
def test_pipeline_run_once_uses_the_available_now_trigger() -> None:
    Path("a.py").write_text(
        "from pyspark.sql.streaming.readwriter import DataStreamWriter\n"
        "class Stream(DataStreamWriter):\n"
        "    def __init__(self): pass\n"
        "    def trigger(self, **kind):\n"
        "        print(kind)\n"
        "        raise SystemExit\n"
        "Stream().start()\n"
    )
    assert run("run", "a.py", "--once")[:2] == (0, "{'availableNow': True}\n")


@pytest.mark.parametrize(
    ("state", "line"),
    [
        (QueryState("loud", rows=20, batches=1), ""),
        (QueryState("loud", rows=20, batches=1, is_over=True), "loud: ended, 20 rows in 1 batch\n"),
        (QueryState("loud", rows=1, batches=2, is_over=True, failure="x"), "loud: failed, 1 row in 2 batches\n"),
    ],
)
def test_the_end_of_a_query_is_printed_once(state: QueryState, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    view = PipelineView(as_json=False, every_s=1_000)
    view.show([state])
    view.show([state])
    assert capsys.readouterr().err == line


def test_archive_prints_its_progress_without_a_terminal_from_the_first_batch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pipeline_archive, "_PROGRESS_S", 0.0)
    view = ArchiveView(as_json=False)
    view.show([])
    view.tell("archive of orders", ArchiveProgress(behind=40))
    view.show([])
    assert capsys.readouterr().err == "archive of orders: 0 rows, 0 rows/s, lag 40\n"


def test_run_without_spark_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "find_spec", lambda name: None)
    code, _, errors = run("run", "a.py")
    assert code == 8
    assert "pip install 'millstream[spark]'" in errors


@pytest.mark.parametrize("name", ["a.py", "spark-pipeline.yml"])
def test_run_without_java_names_the_package_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setattr(
        SparkContext, "_active_spark_context", None
    )  # Other tests in this process may have started one.
    Path(name).write_text("")
    code, _, errors = run("run", name)
    assert code == 8
    assert "pip install 'millstream[spark-java]'" in errors
