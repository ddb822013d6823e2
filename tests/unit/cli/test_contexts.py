"""Tests contexts: which brokers a command connects to, and how the file is read and written."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millstream.cli import contexts
from millstream.cli.app import app
from millstream.model.errors import MillstreamError
from millstream.process.contexts import Contexts, file_path, read_contexts


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("MILLSTREAM_BOOTSTRAP", "MILLSTREAM_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "not yet there" / "config.toml"
    monkeypatch.setenv("MILLSTREAM_CLIENT_CONFIG", str(path))
    return path


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def told(*arguments: str) -> str:
    code, output, errors = run(*arguments)
    assert code == 0, errors
    return output


def asked(*arguments: str) -> str:
    """Returns the error of a command, which names the brokers that it tried. No broker listens at any of them."""
    code, _, errors = run("topic", "list", "--json", *arguments)
    assert code == 5
    message: str = json.loads(errors)["message"]
    return message


def test_contexts_are_set_listed_used_and_deleted() -> None:
    assert "There are no contexts yet" in told("context", "list")
    told("context", "set", "home", "--bootstrap", "127.0.0.1:2")
    told("context", "set", "work.eu-1", "--bootstrap", "127.0.0.1:3,127.0.0.1:4")
    listed = json.loads(told("context", "list", "--json"))
    assert listed == [
        {"name": "home", "bootstrap": "127.0.0.1:2", "current": True},
        {"name": "work.eu-1", "bootstrap": "127.0.0.1:3,127.0.0.1:4", "current": False},
    ]
    told("context", "use", "work.eu-1")
    assert json.loads(told("context", "show", "--json"))["name"] == "work.eu-1"
    assert "no" in told("context", "show", "home")
    told("context", "delete", "work.eu-1")
    assert json.loads(told("context", "list", "--json")) == [
        {"name": "home", "bootstrap": "127.0.0.1:2", "current": False}
    ]


def test_set_with_use_makes_a_new_context_the_current_one() -> None:
    told("context", "set", "a", "-b", "127.0.0.1:2")
    told("context", "set", "b", "-b", "127.0.0.1:3", "--use")
    assert "127.0.0.1:3" in asked()


def test_a_flag_overrides_the_environment_which_overrides_the_current_context(monkeypatch: pytest.MonkeyPatch) -> None:
    told("context", "set", "current", "-b", "127.0.0.1:2")
    told("context", "set", "other", "-b", "127.0.0.1:3")
    told("context", "set", "third", "-b", "127.0.0.1:4")
    assert "127.0.0.1:2" in asked()
    monkeypatch.setenv("MILLSTREAM_CONTEXT", "other")
    assert "127.0.0.1:3" in asked()
    assert "127.0.0.1:4" in asked("--context", "third")
    monkeypatch.setenv("MILLSTREAM_BOOTSTRAP", "127.0.0.1:5")
    assert "127.0.0.1:5" in asked()
    assert "127.0.0.1:4" in asked("--context", "third")
    assert "127.0.0.1:6" in asked("--context", "third", "--bootstrap", "127.0.0.1:6")


def test_an_unknown_context_is_reported_with_the_existing_ones() -> None:
    told("context", "set", "home", "-b", "127.0.0.1:2")
    code, _, errors = run("topic", "list", "--context", "hom")
    assert code == 2
    assert "home" in errors


def test_every_command_that_connects_to_a_broker_accepts_a_context() -> None:
    told("context", "set", "home", "-b", "127.0.0.1:2")
    for command in (["get", "t"], ["group", "list"], ["cluster", "info"], ["sql", "SELECT 1"], ["info"]):
        assert "--context" in told(*command[:2] if command[0] in ("group", "cluster") else command[:1], "--help")
        assert "127.0.0.1:2" in "".join(run(*command, "--context", "home")[1:])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("use", "nobody"), "nobody"),
        (("delete", "nobody"), "nobody"),
        (("show",), "context use"),
        (("show", "nobody"), "nobody"),
        (("set", "a name", "-b", "a:1"), "a name"),
        (("set", "name", "-b", "a:b"), "a:b"),
        (("set", "name", "-b", ""), "--bootstrap"),
        (("set", "name"), "--bootstrap"),
    ],
)
def test_a_usage_error_is_reported_and_changes_nothing(file: Path, arguments: tuple[str, ...], named: str) -> None:
    code, output, errors = run("context", *arguments)
    assert (code, output) == (2, "")
    assert named in errors
    assert not file.exists()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("current = ", "is invalid"),
        ('colour = "red"', "colour"),
        ("[contexts.a]\nbootstrap = 7", "'a'"),
        ('[contexts.a]\nbootstrap = "h:1"\nuser = "me"', "'a'"),
        ("current = 7", "current"),
    ],
)
def test_an_invalid_file_is_reported_with_the_reason_and_not_changed(file: Path, text: str, named: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    for command in (("context", "list"), ("context", "set", "b", "-b", "h:1"), ("topic", "list")):
        code, _, errors = run(*command)
        assert code == 2
        assert named in errors.replace("\n", " ")
    assert file.read_text() == text


def test_a_missing_current_context_is_reported_and_can_be_replaced(file: Path) -> None:
    file.parent.mkdir()
    file.write_text('current = "gone"\n[contexts.a]\nbootstrap = "127.0.0.1:2"\n')
    for command in (("topic", "list"), ("context", "show")):
        code, _, errors = run(*command)
        assert code == 2
        assert "the current context 'gone' is not in the file" in errors
        assert "millstream context use NAME" in errors
        assert "--context" not in errors
    assert "127.0.0.1:2" in asked("--context", "a")
    assert json.loads(told("context", "list", "--json")) == [
        {"name": "a", "bootstrap": "127.0.0.1:2", "current": False},
        {"name": "gone", "bootstrap": None, "current": True},
    ]
    assert "missing" in told("context", "list")
    told("context", "use", "a")
    assert "127.0.0.1:2" in asked()
    assert [row["name"] for row in json.loads(told("context", "list", "--json"))] == ["a"]


def test_an_invalid_file_is_ignored_when_brokers_are_named(file: Path) -> None:
    file.parent.mkdir()
    file.write_text("?")
    assert "127.0.0.1:2" in asked("--bootstrap", "127.0.0.1:2")


def test_a_failed_write_leaves_the_old_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told("context", "set", "a", "-b", "127.0.0.1:2")
    before = file.read_bytes()

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="No space left"):
        contexts.write_contexts(Contexts())
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_a_file_that_is_a_symbolic_link_stays_one(file: Path, tmp_path: Path) -> None:
    real = tmp_path / "real.toml"
    file.parent.mkdir()
    file.symlink_to(real)
    told("context", "set", "a", "-b", "127.0.0.1:2")
    assert file.is_symlink()
    assert "127.0.0.1:2" in real.read_text()


@pytest.mark.parametrize(
    ("home", "expected"),
    [("/settings", "/settings/millstream/config.toml"), ("relative", "/me/.config/millstream/config.toml")],
)
def test_the_file_is_in_the_users_configuration_directory(
    monkeypatch: pytest.MonkeyPatch, home: str, expected: str
) -> None:
    monkeypatch.delenv("MILLSTREAM_CLIENT_CONFIG")
    monkeypatch.setenv("HOME", "/me")
    monkeypatch.setenv("XDG_CONFIG_HOME", home)
    assert str(file_path()) == expected


def test_contexts_are_read_back_as_they_were_written() -> None:
    first = contexts.with_context(Contexts(), "ümlaut.1_x-y", "[::1]:9092")
    made = contexts.with_context(first, "b", "h").using("b")
    contexts.write_contexts(made)
    assert read_contexts() == made


@pytest.mark.parametrize("name", ["", "a b", 'a"b', "a\nb", "x" * 65])
def test_an_invalid_context_name_is_refused(name: str) -> None:
    with pytest.raises(MillstreamError):
        contexts.with_context(Contexts(), name, "h:1")
