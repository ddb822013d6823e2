"""Tests the command line without a broker."""

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from millstream import __version__
from millstream.cli.app import app
from millstream.cli.commands.get import MessagePrinter
from millstream.cli.output import text_or_base64
from millstream.node.settings import FIELDS, BrokerSettings
from millstream.records.record import Record
from millstream.supervisor import serve as node_serve

NOBODY = "127.0.0.1:1"
COMMAND = f"{sys.executable} -m millstream.cli"
CLIENT_COMMANDS = [
    ("topic", "list"),
    ("topic", "create", "t"),
    ("topic", "describe", "t"),
    ("topic", "alter", "t", "--compact"),
    ("topic", "delete", "t", "--yes"),
    ("topic", "empty", "t", "--yes"),
    ("bench", "produce"),
    ("bench", "consume"),
    ("bench", "latency"),
    ("put", "t", "message"),
    ("get", "t"),
    ("tail", "t"),
    ("tail", "t", "--group", "g"),
    ("dump", "t"),
    ("group", "list"),
    ("group", "describe", "g"),
    ("group", "reset", "g", "--to", "latest", "--yes"),
    ("group", "delete", "g", "--yes"),
    ("config", "list", "topic", "t"),
    ("config", "describe", "broker", "1"),
    ("config", "set", "topic", "t", "retention.ms=1"),
    ("config", "unset", "topic", "t", "retention.ms"),
    ("cluster", "info"),
    ("sql", "SELECT"),
    ("sql", "--tables"),
    ("info",),
]
GROUPS = ("topic", "bench", "group", "config", "cluster", "context", "pipeline")


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_CLIENT_CONFIG", "/nowhere/at/all")
    for name in (
        "MILLSTREAM_BOOTSTRAP",
        "MILLSTREAM_CONTEXT",
        "MILLSTREAM_CONFIG",
        *(field.variable for field in FIELDS.values()),
    ):
        monkeypatch.delenv(name, raising=False)


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def shell(line: str) -> "subprocess.CompletedProcess[str]":
    """Runs a command in a real process, with the standard streams that the line asks for."""
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, check=False)


def test_the_version_is_printed() -> None:
    assert run("--version") == (0, f"millstream {__version__}\n", "")


@pytest.mark.parametrize("command", [(), ("serve",), *((name,) for name in GROUPS), *CLIENT_COMMANDS])
def test_every_command_has_a_help_text(command: tuple[str, ...]) -> None:
    code, output, _ = run(*command[:2] if command[:1] and command[0] in GROUPS else command[:1], "--help")
    assert code == 0
    assert "Usage" in output


def every_command(command: Any, *names: str) -> Iterator[tuple[str, ...]]:
    yield names
    for name, below in getattr(command, "commands", {}).items():
        yield from every_command(below, *names, name)


# `serve` is left out, because the flags of some settings are longer than half a screen.
@pytest.mark.parametrize("command", sorted(set(every_command(get_command(app))) - {("serve",)}), ids=" ".join)
def test_help_is_not_truncated_on_a_narrow_screen(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, output, _ = run(*command, "--help")
    assert code == 0
    assert max(map(len, output.splitlines())) <= 80
    assert "…" not in output


@pytest.mark.parametrize("command", CLIENT_COMMANDS)
def test_an_unreachable_broker_is_reported_with_a_hint_and_exit_code_5(command: tuple[str, ...]) -> None:
    code, _, errors = run(*command, "--bootstrap", NOBODY)
    assert code == 5
    assert f"{NOBODY} cannot be reached: connection refused" in errors
    assert "millstream serve" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("command", CLIENT_COMMANDS)
def test_an_unreachable_broker_is_reported_as_json(command: tuple[str, ...]) -> None:
    code, _, errors = run(*command, "--bootstrap", NOBODY, "--json")
    assert code == 5
    document = json.loads(errors)
    assert document["error"] == "NETWORK_EXCEPTION"
    assert "millstream serve" in document["hint"]


@pytest.mark.parametrize(("seeds", "each"), [(1, "1"), (2, "0.5")])
def test_silent_brokers_share_the_timeout(seeds: int, each: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        names = ["127.0.0.1", "localhost"][:seeds]
        code, _, errors = run("topic", "list", "--timeout", "1s", "-b", ",".join(f"{name}:{port}" for name in names))
    assert code == 5
    assert f"127.0.0.1:{port} did not answer in {each} s" in errors


def test_the_bootstrap_list_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_BOOTSTRAP", "127.0.0.1:2")
    code, _, errors = run("topic", "list")
    assert code == 5
    assert "127.0.0.1:2 " in errors


def test_info_shows_the_local_installation_without_a_broker() -> None:
    code, output, _ = run("info", "--json", "--bootstrap", NOBODY)
    document = json.loads(output)
    assert document["local"]["millstream"] == __version__
    assert isinstance(document["local"]["codec_compiled"], bool)
    assert document["broker"]["error"] == "NETWORK_EXCEPTION"
    assert code == 5


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("put", "t", "m", "--key", "k", "--key-separator", ":"), "--key-separator"),
        (("put", "t", "m", "--key-separator", ""), "--key-separator"),
        (("put", "t", "m", "--header", "novalue"), "--header"),
        (("put", "t", "m", "--compression", "rar"), "--compression"),
        (("put", "t", "m", "--acks", "2"), "--acks"),
        (("put", "t", "m", "--file", "f"), "--file"),
        (("put", "t", "m", "--tombstone", "--key", "k"), "--tombstone"),
        (("put", "t", "--tombstone"), "--key"),
        (("put", "t", "m", "--whole"), "--whole"),
        (("put", "t", "--json-lines", "--whole"), "--whole"),
        (("put", "t", "--json-lines", "--key-separator", ":"), "--json-lines"),
        (("put", "t", "m", "--timestamp", "17"), "--timestamp"),
        (("put", "t", "m", "--timestamp", "soon"), "--timestamp"),
        (("dump",), "--offline"),
        (("dump", "t", "--from", "yesterday"), "--from"),
        (("dump", "t", "--count", "0"), "--count"),
        (("dump", "--offline", "/no/such/place"), "/no/such/place"),
        (("dump", "--offline", __file__), "not a segment file"),
        (("dump", "--offline", "/", "--from", "1h"), "--from"),
        (("get", "t", "--raw", "--json"), "--raw"),
        (("get", "t", "--raw", "--verbose"), "--raw"),
        (("get", "t", "--from", "yesterday"), "--from"),
        (("get", "t", "--to", "tomorrow"), "--to"),
        (("get", "t", "--follow", "--to", "latest"), "--follow"),
        (("topic", "create", "t", "--set", "retention.ms"), "--set"),
        (("topic", "list", "--bootstrap", "a:b"), "a:b"),
        (("get", "t", "--count", "0"), "--count"),
        (("put", "t", "m", "--partition", "-1"), "--partition"),
        (("put", "t", "m", "--partition", "99999999999"), "--partition"),
        (("get", "t", "--partition", "99999999999"), "--partition"),
        (("get", "t", "--from", "@99999999999999999999"), "--from"),
        (("get", "t", "--from", "99999999999999999999"), "--from"),
        (("get", "t", "--from", "99999999999999w"), "--from"),
        (("get", "t", "--to", "@99999999999999999999"), "--to"),
        (("get", "t", "--to", "1969-12-31T00:00Z"), "--to"),
        (("topic", "create", "t", "--partitions", "99999999999"), "--partitions"),
        (("topic", "create", "t", "--replication-factor", "32768"), "--replication-factor"),
        (("topic", "delete", "t"), "add --yes"),
        (("group", "delete", "g"), "add --yes"),
        (("group", "reset", "g", "--to", "somewhere"), "+N or -N"),
        (("group", "reset", "g", "--to", "-"), "--to"),
        (("tail", "t", "--group", "g", "--partition", "1"), "--partition"),
        (("tail", "t", "--group", "g", "--from", "17"), "group reset g --to 17"),
        (("tail", "t", "--json", "--verbose"), "--verbose"),
        (("config", "set", "topic", "t", "retention.ms"), "NAME=VALUE"),
        (("config", "list", "broker", "first"), "first"),
        (("config", "describe", "broker"), "NAME"),
        (("config", "list", "shelf", "t"), "shelf"),
        (("sql",), "--file"),
        (("sql", "SELECT 1", "--file", "f"), "--file"),
        (("sql", "SELECT 1", "--tables"), "--tables"),
        (("sql", "  "), "empty"),
        (("sql", "--file", "/no/such/file"), "/no/such/file"),
        (("topic", "delete", "t", "--json"), "add --yes"),
        (("topic", "list", "--timeout", "nan"), "--timeout"),
        (("topic", "list", "--timeout", "inf"), "--timeout"),
        (("topic", "list", "--timeout", "-1"), "--timeout"),
        (("topic", "list", "--timeout", "soon"), "30s, 5m"),
        (("topic", "list", "--timeout", "1w 1d"), "--timeout"),
    ],
)
def test_a_usage_error_names_the_option_and_exits_with_2(arguments: tuple[str, ...], named: str) -> None:
    code, _, errors = run(*arguments, *(() if "--bootstrap" in arguments else ("--bootstrap", NOBODY)))
    assert code == 2
    assert named in errors


@pytest.mark.parametrize(
    ("arguments", "named", "helping"),
    [
        (("topic", "create", "a", "--partitions", "0"), "--partitions", "millstream topic create --help"),
        (("topic", "create"), "TOPIC", "millstream topic create --help"),
        (("topic", "crate", "a"), "crate", "millstream topic --help"),
        (("get", "t", "--colour", "red"), "--colour", "millstream get --help"),
        (("topic", "list", "--context", "nowhere"), "nowhere", ""),
        (("get", "t", "--from", "yesterday"), "--from", ""),
    ],
)
def test_a_usage_error_with_json_is_one_json_document(arguments: tuple[str, ...], named: str, helping: str) -> None:
    code, output, errors = run(*arguments, "--json")
    assert (code, output) == (2, "")
    document = json.loads(errors)
    assert document["error"] == "INVALID_SETTING"
    assert named in document["message"]
    assert helping in document["hint"]


def test_a_message_that_equals_the_json_flag_does_not_make_errors_json() -> None:
    code, _, errors = run("put", "t", "--partition", "x", "--", "--json")
    assert code == 2
    assert not errors.startswith("{")


def test_config_describe_topic_lists_all_topic_settings_without_a_broker() -> None:
    code, output, _ = run("config", "describe", "topic", "--bootstrap", NOBODY)
    assert code == 0
    assert "retention.ms = 7d\n    long, default\n    " in output
    _, output, _ = run("config", "describe", "topic", "--json", "--bootstrap", NOBODY)
    assert all(row["documentation"] and row["type"] for row in json.loads(output))


@pytest.mark.parametrize("time", ["@-5", "soon", "17", "latest"])
def test_an_invalid_timestamp_is_refused_with_the_accepted_forms(time: str) -> None:
    code, _, errors = run("put", "t", "m", "--timestamp", time)
    assert code == 2
    assert f"--timestamp: '{time}' is not a time (use a time such as 2025-01-31T12:00" in errors
    assert "an offset" not in errors


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[BrokerSettings]:
    """Returns the list of settings with which brokers would have been started."""
    started: list[BrokerSettings] = []

    def remember(settings: BrokerSettings) -> int:
        started.append(settings)
        return 0

    monkeypatch.setattr(node_serve, "run", remember)
    return started


def test_serve_passes_its_flags_to_the_broker(given: list[BrokerSettings], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_NODE_ID", "7")
    flags = ("--data", "a,b", "--kafka-port", "0", "--flush", "os", "--retention-ms", "1h", "--auto-create", "no")
    code, _, errors = run("serve", *flags)
    assert (code, errors) == (0, "")
    (settings,) = given
    assert settings.data == ("a", "b")
    assert (settings.kafka_port, settings.flush, settings.retention_ms, settings.node_id) == (0, "os", 3_600_000, 7)
    assert not settings.auto_create


def test_serve_reads_a_settings_file(given: list[BrokerSettings], tmp_path: Path) -> None:
    file = tmp_path / "millstream.toml"
    file.write_text('flush = "interval"\nkafka_port = 1234\n')
    assert run("serve", "--config", str(file), "--kafka-port", "4321")[0] == 0
    assert (given[0].flush, given[0].kafka_port) == ("interval", 4321)


def test_serve_exits_with_the_brokers_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_serve, "run", lambda settings: 3)
    assert run("serve")[0] == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ("--flush", "sometimes"),
        ("--kafka-port", "many"),
        ("--config", "/no/such/file.toml"),
        ("--auto-create", "perhaps"),
    ],
)
def test_an_invalid_setting_is_named_and_exits_with_2(arguments: tuple[str, str]) -> None:
    code, _, errors = run("serve", *arguments)
    assert code == 2
    assert arguments[1] in errors


def test_every_setting_of_the_broker_has_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")  # Long flags are truncated in narrower output.
    _, output, _ = run("serve", "--help")
    for field in FIELDS.values():
        assert field.flag in output


def test_the_command_line_imports_no_heavy_modules() -> None:
    heavy = ["millstream.sdk", "millstream.broker", "kafka", "rich", "uvloop", "cramjam", "sqlite3"]
    program = f"import sys, millstream.cli.app; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == "[]\n"


RECORD = Record(5, 1_700_000_000_123, b"k", b"v\n", (("h", b"\xff"), ("n", None)))


def test_message_values_are_printed_unchanged_one_per_line(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    MessagePrinter("t", as_json=False, verbose=False).write(
        0, [RECORD, RECORD._replace(value=b"\xff"), RECORD._replace(value=None)]
    )
    assert capfdbinary.readouterr().out == b"v\n\n\xff\n\n"


def test_a_verbose_line_shows_time_partition_offset_key_and_headers(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    MessagePrinter("t", as_json=False, verbose=True).write(2, [RECORD._replace(value=b"v", key=None)])
    line = capfdbinary.readouterr().out.decode()
    assert "2:5  -  v h=\\xff n=-\n" in line
    assert "20.123" in line


def test_a_verbose_line_escapes_control_characters(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    hostile = b"\x1b[31mRED\x07"
    MessagePrinter("t", verbose=True).write(2, [Record(5, -1, hostile, hostile, ((hostile.decode(), hostile),))])
    escaped = r"\x1b[31mRED\x07"
    assert capfdbinary.readouterr().out.decode() == f"-  2:5  {escaped}  {escaped} {escaped}={escaped}\n"


HOSTILE = b"\x1b]0;title\x07\x1b[31mRED\tkept\nline \xff \xc2\x9b" + "\u202e".encode()


def in_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)


def test_a_terminal_gets_control_characters_of_values_escaped(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_terminal(monkeypatch)
    MessagePrinter("t").write(0, [RECORD._replace(value=HOSTILE)])
    expected = "\\x1b]0;title\\x07\\x1b[31mRED\tkept\nline \\xff \\x9b\\u202e\n"
    assert capfdbinary.readouterr().out.decode() == expected
    MessagePrinter("t", as_json=True).write(0, [RECORD._replace(value=HOSTILE.replace(b"\xff", b""), key=b"\xc2\x9b")])
    line = capfdbinary.readouterr().out.decode()
    assert line[:-1].isprintable()
    assert json.loads(line)["key"] == "\x9b"


def test_raw_and_output_to_a_file_keep_control_characters_of_values(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    MessagePrinter("t").write(0, [RECORD._replace(value=HOSTILE)])
    assert capfdbinary.readouterr().out == HOSTILE + b"\n"
    in_terminal(monkeypatch)
    MessagePrinter("t", raw=True).write(0, [RECORD._replace(value=HOSTILE)])
    assert capfdbinary.readouterr().out == HOSTILE


@pytest.mark.parametrize("timestamp_ms", [1_700_000_000_000_000, 2**63 - 1])
def test_a_timestamp_beyond_the_calendar_is_shown_as_a_number(
    timestamp_ms: int, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    MessagePrinter("t", as_json=False, verbose=True).write(2, [RECORD._replace(timestamp=timestamp_ms)])
    assert capfdbinary.readouterr().out.startswith(f"@{timestamp_ms}  2:5  k".encode())


def test_json_shows_bytes_that_are_not_utf8_as_base64(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    MessagePrinter("t", as_json=True, verbose=False).write(2, [RECORD._replace(value=b"\xff\x00")])
    assert json.loads(capfdbinary.readouterr().out) == {
        "topic": "t",
        "partition": 2,
        "offset": 5,
        "timestamp": 1_700_000_000_123,
        "key": "k",
        "value_base64": "/wA=",
        "headers": [{"name": "h", "value_base64": "/w=="}, {"name": "n", "value": None}],
    }


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"text", {"x": "text"}), ("ü".encode(), {"x": "ü"}), (b"\xfc", {"x_base64": "/A=="}), (None, {"x": None})],
)
def test_bytes_are_text_or_base64(data: bytes | None, expected: dict[str, str | None]) -> None:
    assert text_or_base64("x", data) == expected


@pytest.mark.parametrize("command", CLIENT_COMMANDS)
def test_a_command_with_closed_output_fails_before_it_does_anything(command: tuple[str, ...]) -> None:
    ended = shell(f"{COMMAND} {' '.join(command)} --bootstrap {NOBODY} >&-")
    assert (ended.returncode, ended.stderr) == (1, "millstream: standard output is closed; nothing was done\n")


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_cause_no_traceback(closed: str) -> None:
    ended = shell(f"{COMMAND} get t --bootstrap {NOBODY} {closed}")
    assert ended.returncode == (1 if " >&-" in closed else 5)
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("debug", ["", "1"])
def test_an_unexpected_exception_shows_a_traceback_only_in_debug_mode(debug: str) -> None:
    program = (
        "from millstream.cli import app, main\n"
        "def broken(**given): raise LookupError('unforeseen')\n"
        "app.app = broken\n"
        "main.main()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env={"MILLSTREAM_DEBUG": debug}
    )
    assert ended.returncode == 70
    assert "millstream: this is a bug: LookupError: unforeseen\n" in ended.stderr
    assert ("Traceback" in ended.stderr) == bool(debug)


@pytest.mark.parametrize(
    ("command", "default"), [("get", "30s"), ("serve", "200ms"), ("serve", "./millstream-data"), ("serve", "256MiB")]
)
def test_help_shows_defaults_with_units(command: str, default: str) -> None:
    code, output, _ = run(command, "--help")
    words = " ".join(re.sub("[│╭╮╰╯─]", " ", output).split())
    assert (code, f"(default: {default})" in words, "[default: (" in words) == (0, True, False)
