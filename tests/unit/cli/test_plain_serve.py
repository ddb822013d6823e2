"""Tests that plain flags of `serve` are parsed without Typer, and give the same settings as with Typer."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millstream.cli.app import app
from millstream.cli.commands import serve
from millstream.node.settings import BrokerSettings

PLAIN: list[Sequence[str]] = [
    (),
    ("--kafka-port", "0"),
    ("--kafka-port=0",),
    ("--kafka-port", "1", "--host", "::1", "--kafka-port", "2"),
    ("--operator-port", "off", "--data", "a,b", "--auto-create=no"),
    ("--operator-port", "-1"),
    ("--advertised-host", ""),
    ("--advertised-host=",),
    ("--advertised-host", "a=b"),
    ("--advertised-host=a=b",),
    ("--advertised-host", "--help"),
    ("--retention-ms", "2d"),
]
NOT_PLAIN: list[Sequence[str]] = [
    ("--help",),
    ("--host", "::1", "--help"),
    ("--host",),
    ("--hosts", "::1"),
    ("--hos", "::1"),
    ("more",),
    ("--", "--host", "::1"),
    ("--kafka-port", "many"),
    ("--config", "/no/such/file.toml"),
]


def through_typer(arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> BrokerSettings | None:
    seen: list[BrokerSettings] = []

    def run(settings: BrokerSettings) -> int:
        seen.append(settings)
        return 0

    monkeypatch.setattr(serve, "run", run)
    CliRunner().invoke(app, ["serve", *arguments])
    return seen[0] if seen else None


@pytest.mark.parametrize("arguments", [*PLAIN, *NOT_PLAIN], ids=" ".join)
def test_a_command_line_gives_the_same_settings_with_and_without_typer(
    arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert serve.plain_settings(arguments) == through_typer(arguments, monkeypatch)


@pytest.mark.parametrize("arguments", PLAIN, ids=" ".join)
def test_plain_flags_are_parsed_without_typer(arguments: Sequence[str]) -> None:
    assert serve.plain_settings(arguments) is not None


@pytest.mark.parametrize("arguments", NOT_PLAIN, ids=" ".join)
def test_plain_settings_returns_none_for_help_and_invalid_flags(arguments: Sequence[str]) -> None:
    assert serve.plain_settings(arguments) is None


def test_a_settings_file_is_read_with_and_without_typer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "millstream.toml"
    file.write_text("kafka_port = 7")
    plain = serve.plain_settings(["--config", str(file), "--host", "::1"])
    assert plain == BrokerSettings(kafka_port=7, host="::1")
    monkeypatch.setenv("MILLSTREAM_CONFIG", str(file))
    assert serve.plain_settings(["--host", "::1"]) == plain == through_typer(["--host", "::1"], monkeypatch)
