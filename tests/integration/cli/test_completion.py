"""Tests shell completion against a real broker."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from builders.command import TIMEOUT_S, Command

NOBODY = "127.0.0.1:1"


def in_bash(millstream: Command, *words: str) -> list[str]:
    """Returns what bash offers for the last of these words, which is incomplete."""
    typed = " ".join(f"'{word}'" for word in words)
    script = f"""
        source <(millstream completion bash)
        COMP_WORDS=(millstream {typed}) COMP_CWORD={len(words)}
        _millstream_completion millstream
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "-c", script],
        env=millstream.environment | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert ended.stderr == ""
    return [line for line in ended.stdout.splitlines() if line]


def test_bash_completes_commands_and_options(millstream: Command) -> None:
    assert in_bash(millstream, "top") == ["topic"]
    assert set(in_bash(millstream, "topic", "")) == {"create", "list", "describe", "alter", "delete", "empty"}
    assert "--key-separator" in in_bash(millstream, "put", "--key")


@pytest.mark.parametrize(
    "command", [("get",), ("put",), ("tail",), ("dump",), ("topic", "describe"), ("topic", "delete")]
)
def test_bash_completes_topics_from_the_broker(millstream: Command, topic: str, command: tuple[str, ...]) -> None:
    millstream.succeed("topic", "create", topic)
    assert in_bash(millstream, *command, topic[:-2]) == [topic]
    assert in_bash(millstream, *command, "--bootstrap", NOBODY, topic[:-2]) == []


@pytest.mark.parametrize(
    ("shell", "question"),
    [
        ("zsh", {"_TYPER_COMPLETE_ARGS": "millstream get {topic}"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "millstream get {topic}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_zsh_and_fish_complete_topics_from_the_broker(
    millstream: Command, topic: str, shell: str, question: dict[str, str]
) -> None:
    script = millstream.succeed("completion", shell).output.decode()
    assert f"_MILLSTREAM_COMPLETE=complete_{shell}" in script
    millstream.succeed("topic", "create", topic)
    asked = {name: text.format(topic=topic[:-2]) for name, text in question.items()}
    ended = subprocess.run(
        millstream.line(),
        env=millstream.environment | asked | {"_MILLSTREAM_COMPLETE": f"complete_{shell}"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert topic in ended.stdout


def test_an_unknown_shell_is_refused(millstream: Command) -> None:
    ended = millstream.run("completion", "tcsh")
    assert ended.code == 2
    assert "tcsh" in ended.errors
