"""Tests `millstream topic` against a real broker."""

import json
import re

import pytest

from builders.command import Command
from builders.terminal import Terminal
from millstream.testing.real_broker import RealBroker


def names(millstream: Command, *flags: str) -> tuple[list[str], str | None]:
    (page,) = millstream.succeed("topic", "list", "--json", *flags).documents
    return [row["name"] for row in page["topics"]], page["after"]


def test_topics_are_listed_in_pages(tmp_path_factory: pytest.TempPathFactory) -> None:
    with RealBroker(tmp_path_factory.mktemp("pages") / "data") as broker:
        millstream = Command(broker.bootstrap)
        assert b"There are no topics yet" in millstream.succeed("topic", "list").output
        every = ["a", "a-1", "a.1", "b", "c"]
        for name in every:
            millstream.succeed("topic", "create", name)
        assert names(millstream) == (every, None)
        assert names(millstream, "--limit", "2") == (every[:2], every[1])
        assert names(millstream, "--limit", "2", "--after", every[1]) == (every[2:4], every[3])
        assert names(millstream, "--limit", "2", "--after", every[3]) == (every[4:], None)
        assert names(millstream, "--limit", "2", "--all") == (every, None)
        assert millstream.succeed("topic", "list", "--after", "c").output == b"There are no topics after c.\n"
        ended = millstream.run("topic", "list", "--limit", "2")
        assert (ended.code, ended.errors) == (
            0,
            "There are more: --after a-1 shows the next page, --all shows all.\n",
        )


def test_describe_shows_the_partitions_and_settings_of_a_topic(millstream: Command, topic: str) -> None:
    millstream.succeed("topic", "create", topic, "-p", "2", "--setting", "retention.ms=2d", "--compact")
    millstream.succeed("put", topic, "a", "b", "--key", "k", "--partition", "1")
    (document,) = millstream.succeed("topic", "describe", topic, "--json").documents
    assert (document["name"], document["internal"]) == (topic, False)
    first, second = document["partitions"]
    assert (first["first_offset"], first["next_offset"], first["bytes"]) == (0, 0, 0)
    assert (second["first_offset"], second["next_offset"]) == (0, 2)
    assert second["bytes"] > 60
    assert second["leader"] in second["replicas"] == second["in_sync"]
    settings = {row["name"]: row["value"] for row in document["settings"]}
    assert (settings["retention.ms"], settings["cleanup.policy"]) == ("172800000", "compact")
    assert "compression.type" not in settings
    (everything,) = millstream.succeed("topic", "describe", topic, "--json", "--all-settings").documents
    assert "compression.type" in {row["name"] for row in everything["settings"]}
    text = millstream.succeed("topic", "describe", topic).output.decode()
    assert text.startswith(f"{topic}: 2 partitions, id ")
    assert re.search(r"^cleanup.policy +compact +topic *$", text, flags=re.MULTILINE)


def test_alter_changes_settings_and_adds_partitions(millstream: Command, topic: str) -> None:
    millstream.succeed("topic", "create", topic, "--setting", "retention.ms=2d")
    said = millstream.succeed(
        "topic", "alter", topic, "--setting", "max.message.bytes=2MB", "--unset", "retention.ms", "--partitions", "3"
    ).output.decode()
    assert said.splitlines()[:3] == [
        "Set max.message.bytes to 2000000.",
        "retention.ms is at its default again.",
        f"Topic {topic} has 3 partitions now.",
    ]
    (document,) = millstream.succeed("topic", "describe", topic, "--json").documents
    own = {row["name"]: row["value"] for row in document["settings"] if row["source"] == "topic"}
    assert own == {"max.message.bytes": "2000000"}
    assert len(document["partitions"]) == 3
    millstream.succeed("put", topic, "a", "--partition", "2")
    (changed,) = millstream.succeed("topic", "alter", topic, "--partitions", "4", "--json").documents
    assert changed == {"name": topic, "set": {}, "unset": [], "partitions": 4}


@pytest.mark.parametrize(
    ("flags", "code", "error"),
    [
        (("--partitions", "1"), 1, "INVALID_PARTITIONS"),
        (("--setting", "no.such.setting=1"), 1, "INVALID_CONFIG"),
        (("--setting", "cleanup.policy=shred"), 1, "INVALID_CONFIG"),
        (("--setting", "retention.ms=soon"), 1, "INVALID_CONFIG"),
        (("--compact", "--setting", "cleanup.policy=delete"), 2, "INVALID_SETTING"),
        (("--setting", "retention.ms=1d", "--unset", "retention.ms"), 2, "INVALID_SETTING"),
        ((), 2, "INVALID_SETTING"),
    ],
)
def test_an_invalid_alter_is_refused(
    millstream: Command, topic: str, flags: tuple[str, ...], code: int, error: str
) -> None:
    millstream.succeed("topic", "create", topic, "-p", "2")
    ended = millstream.run("topic", "alter", topic, *flags, "--json")
    assert (ended.code, json.loads(ended.errors)["error"]) == (code, error)


@pytest.mark.parametrize("command", ["describe", "alter", "delete", "empty"])
def test_a_missing_topic_is_reported_with_a_similar_name(millstream: Command, topic: str, command: str) -> None:
    millstream.succeed("topic", "create", topic)
    flags = {"alter": ("--compact",), "delete": ("--yes",), "empty": ("--yes",)}.get(command, ())
    ended = millstream.run("topic", command, topic + "x", *flags)
    assert ended.code == 1
    assert f"topic '{topic}x' does not exist; did you mean {topic}" in ended.errors


def test_delete_asks_for_confirmation_on_a_terminal(millstream: Command, topic: str) -> None:
    millstream.succeed("topic", "create", topic)
    with Terminal(millstream, "topic", "delete", topic) as terminal:
        terminal.expect(f"Delete {topic} with all messages? [y/N]: ")
        terminal.type("n\n")
        assert terminal.ended() == 1
    with Terminal(millstream, "topic", "delete", topic) as terminal:
        terminal.expect("[y/N]: ")
        terminal.type("y\n")
        terminal.expect(f"Deleted topic {topic}.")
        assert terminal.ended() == 0


@pytest.mark.parametrize("columns", [20, 200])
def test_a_table_fits_the_width_of_the_terminal(millstream: Command, topic: str, columns: int) -> None:
    millstream.succeed("topic", "create", topic)
    with Terminal(millstream, "topic", "list", "--all", columns=columns) as terminal:
        assert terminal.ended() == 0
        lines = terminal.text.splitlines()
    assert max(map(len, lines)) <= columns
    assert (topic in terminal.text) == (columns == 200)


def test_empty_deletes_all_messages_and_offsets_continue(millstream: Command, topic: str) -> None:
    millstream.succeed("topic", "create", topic, "-p", "2")
    millstream.succeed("put", topic, "a", "b", "--partition", "0")
    millstream.succeed("put", topic, "c", "--partition", "1")
    assert millstream.run("topic", "empty", topic).code == 2
    with Terminal(millstream, "topic", "empty", topic) as terminal:
        terminal.expect(f"Delete the 3 messages of {topic}? [y/N]: ")
        terminal.type("n\n")
        assert terminal.ended() == 1
    assert len(millstream.succeed("get", topic).lines) == 3
    (emptied,) = millstream.succeed("topic", "empty", topic, "--yes", "--json").documents
    assert emptied == {
        "name": topic,
        "deleted": 3,
        "partitions": [{"partition": 0, "first_offset": 2}, {"partition": 1, "first_offset": 1}],
    }
    assert millstream.succeed("get", topic).lines == []
    assert millstream.succeed("topic", "empty", topic).output.decode() == f"Topic {topic} is empty already.\n"
    said = millstream.succeed("put", topic, "d", "--partition", "0").output.decode()
    assert said == f"Stored in {topic}, partition 0, at offset 2.\n"


def test_empty_of_a_compacted_topic_is_refused_with_a_hint(millstream: Command, topic: str) -> None:
    millstream.succeed("topic", "create", topic, "--compact")
    millstream.succeed("put", topic, "v", "--key", "k")
    ended = millstream.run("topic", "empty", topic, "--yes")
    assert ended.code == 1
    assert f"`millstream topic alter {topic} --setting cleanup.policy=compact,delete` allows it" in ended.errors
    millstream.succeed("topic", "alter", topic, "--setting", "cleanup.policy=compact,delete")
    assert (
        millstream.succeed("topic", "empty", topic, "--yes").output.decode() == f"Deleted 1 message of topic {topic}.\n"
    )
