"""Tests `millstream config`, `cluster` and `sql` against a real broker."""

import json
from pathlib import Path

import pytest

from builders.command import Command
from millstream import __version__


def test_topic_settings_are_set_listed_and_unset(millstream: Command, topic: str) -> None:
    millstream.succeed("topic", "create", topic)
    said = millstream.succeed("config", "set", "topic", topic, "retention.ms=2h", "max.message.bytes=2MiB").output
    assert said.splitlines()[0] == f"Set retention.ms = 2h for topic {topic}.".encode()
    shown = [line.split()[:2] for line in millstream.succeed("config", "list", "topic", topic).lines]
    assert [b"retention.ms", b"2h"] in shown
    assert [b"max.message.bytes", b"2MiB"] in shown
    (rows,) = millstream.succeed("config", "list", "topic", topic, "--json").documents
    own = {row["name"]: row["value"] for row in rows if row["own"]}
    assert own == {"retention.ms": "7200000", "max.message.bytes": "2097152"}
    millstream.succeed("config", "unset", "topic", topic, "retention.ms", "max.message.bytes")
    (rows,) = millstream.succeed("config", "list", "topic", topic, "--json").documents
    assert [row for row in rows if row["own"]] == []


def test_config_describe_shows_value_type_source_and_documentation(millstream: Command, topic: str) -> None:
    millstream.succeed("topic", "create", topic, "--setting", "cleanup.policy=compact")
    lines = millstream.succeed("config", "describe", "topic", topic, "cleanup.policy").lines
    assert lines[0] == b"cleanup.policy = compact"
    assert lines[1] == b"    list, topic"
    assert len(lines) > 2


def test_an_unknown_setting_is_refused_with_a_suggestion_and_a_hint(millstream: Command, topic: str) -> None:
    ended = millstream.run("topic", "create", topic, "--set", "retentoin.ms=1")
    assert ended.code == 1
    assert "retentoin.ms: unknown topic setting; did you mean retention.ms?\n" in ended.errors
    ended = millstream.run("topic", "create", topic, "--set", "foo=1", "--json")
    refused = json.loads(ended.errors)
    assert refused["message"] == f"creating topic '{topic}': foo: unknown topic setting"
    assert b"retention.ms = " in millstream.succeed(*refused["hint"].split("`")[1].split()[1:]).output
    millstream.succeed("topic", "create", topic)
    ended = millstream.run("config", "describe", "topic", topic, "retentoin.ms")
    assert "did you mean retention.ms" in ended.errors
    assert f"`millstream config describe topic {topic}`" in ended.errors


def test_config_of_a_missing_topic_suggests_a_similar_name(millstream: Command, topic: str) -> None:
    millstream.succeed("topic", "create", topic)
    for command in (("list",), ("describe",), ("set", "retention.ms=1"), ("unset", "retention.ms")):
        ended = millstream.run("config", command[0], "topic", f"{topic}x", *command[1:])
        assert ended.code == 1
        assert f"did you mean {topic}" in ended.errors


def test_config_set_with_dry_run_changes_nothing(millstream: Command, topic: str) -> None:
    millstream.succeed("topic", "create", topic)
    millstream.succeed("config", "set", "topic", topic, "retention.ms=5", "--dry-run")
    assert b"retention.ms" not in b"".join(
        line for line in millstream.succeed("config", "list", "topic", topic).lines if b"topic" in line.split()
    )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("set", "topic", "{topic}", "max.message.bytes=999GiB"), "max.message.bytes"),
        (("set", "topic", "{topic}", "colour=red"), "colour"),
        (("describe", "topic", "{topic}", "colour"), "colour"),
        (("list", "topic", "nobody-has-this"), "nobody-has-this"),
        (("list", "broker", "77"), "broker 77 does not exist"),
    ],
)
def test_a_refusal_by_the_broker_comes_with_a_hint(
    millstream: Command, topic: str, arguments: tuple[str, ...], named: str
) -> None:
    millstream.succeed("topic", "create", topic)
    ended = millstream.run("config", *(each.format(topic=topic) for each in arguments))
    assert ended.code == 1
    assert named in ended.errors
    assert "millstream " in ended.errors.splitlines()[1]


@pytest.mark.parametrize(("kind", "name"), [("group", "billing"), ("broker", "1"), ("topic", "{topic}")])
def test_a_refused_setting_hints_at_the_settings_of_its_own_kind(
    millstream: Command, topic: str, kind: str, name: str
) -> None:
    millstream.succeed("topic", "create", topic)
    name = name.format(topic=topic)
    ended = millstream.run("config", "set", kind, name, "colour=red")
    assert ended.code == 1
    assert f"`millstream config describe {kind} {name}` lists all settings." in ended.errors


def test_settings_of_a_broker_are_listed(millstream: Command) -> None:
    (rows,) = millstream.succeed("config", "list", "broker", "1", "--all", "--json").documents
    assert len(rows) > 10
    assert {"name", "value", "type", "source", "own", "read_only", "secret", "documentation"} == rows[0].keys()


def test_cluster_info_shows_brokers_and_totals(millstream: Command, topic: str) -> None:
    millstream.succeed("topic", "create", topic, "-p", "3")
    millstream.succeed("put", topic, "x" * 1000)
    millstream.succeed("tail", topic, "--group", f"of-{topic}", "--from", "beginning", "--limit", "1")
    (facts,) = millstream.succeed("cluster", "info", "--json").documents
    (broker,) = facts["brokers"]
    assert (broker["version"], broker["controller"]) == (__version__, True)
    assert facts["topics"] >= 1
    assert facts["partitions"] >= 3
    assert facts["internal_topics"] == 1
    assert facts["bytes"] > 1000
    assert facts["groups"] >= 1
    text = millstream.succeed("cluster", "info").output.decode()
    assert text.startswith(f"Cluster {facts['cluster_id']}\n")


def test_sql_prints_a_table_or_json(millstream: Command, topic: str) -> None:
    millstream.succeed("topic", "create", topic, "-p", "3")
    statement = f"SELECT name, partitions FROM topics WHERE name = '{topic}'"
    (document,) = millstream.succeed("sql", statement, "--json").documents
    assert document == {"columns": ["name", "partitions"], "rows": [[topic, 3]], "truncated": False}
    lines = millstream.succeed("sql", statement).output.decode().splitlines()
    assert lines[0].split() == ["name", "partitions"]
    assert lines[2].split() == [topic, "3"]


def test_sql_reads_the_statement_from_a_file_or_standard_input(millstream: Command, tmp_path: Path) -> None:
    file = tmp_path / "question.sql"
    file.write_text("SELECT 7 AS seven")
    expected = {"columns": ["seven"], "rows": [[7]], "truncated": False}
    assert millstream.succeed("sql", "--file", str(file), "--json").documents == [expected]
    assert millstream.succeed("sql", "--file", "-", "--json", given=b"SELECT 7 AS seven").documents == [expected]


def test_sql_lists_the_tables_with_their_columns(millstream: Command) -> None:
    (rows,) = millstream.succeed("sql", "--tables", "--json").documents
    tables = {row["table"]: row["columns"] for row in rows}
    assert {"brokers", "topics", "partitions", "producers"} <= tables.keys()
    assert "name" in tables["topics"]
    assert b"topics" in millstream.succeed("sql", "--tables").output


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("SELEC 1", "syntax error"),
        ("SELECT * FROM shelves", "millstream sql --tables"),
        ("DELETE FROM topics", "use SELECT"),
    ],
)
def test_a_statement_that_fails_is_reported_with_the_reason(millstream: Command, statement: str, named: str) -> None:
    ended = millstream.run("sql", statement)
    assert ended.code == 1
    assert named in ended.errors
    failure = json.loads(millstream.run("sql", statement, "--json").errors)
    assert failure["error"] == "INVALID_REQUEST"


def test_a_truncated_result_is_reported(millstream: Command) -> None:
    statement = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50) SELECT i FROM n"
    ended = millstream.run("sql", statement, "--limit", "10")
    assert (ended.code, len(ended.lines)) == (0, 12)
    assert "--limit" in ended.errors
    (document,) = millstream.succeed("sql", statement, "--limit", "10", "--json").documents
    assert document["truncated"] is True


def test_a_context_selects_the_broker_of_a_command(millstream: Command, tmp_path: Path) -> None:
    bootstrap = millstream.environment.pop("MILLSTREAM_BOOTSTRAP")
    millstream.environment["MILLSTREAM_CLIENT_CONFIG"] = str(tmp_path / "contexts.toml")
    millstream.succeed("context", "set", "here", "--bootstrap", bootstrap)
    millstream.succeed("context", "set", "nowhere", "--bootstrap", "127.0.0.1:1")
    millstream.succeed("cluster", "info")
    assert millstream.run("cluster", "info", "--context", "nowhere").code == 5
    millstream.environment["MILLSTREAM_CONTEXT"] = "nowhere"
    assert millstream.run("cluster", "info").code == 5
    millstream.succeed("cluster", "info", "--context", "here")


def test_cluster_services_shows_services_and_the_leaders_of_topics(millstream: Command, topic: str) -> None:
    millstream.succeed("topic", "create", topic, "--partitions", "2")
    (told,) = millstream.succeed("cluster", "services", topic, "--json").documents
    kinds = {row["kind"]: row for row in told["services"]}
    assert {"kafka", "catalog"} <= kinds.keys()
    node = kinds["kafka"]["node_id"]
    assert told["leaders"] == [{"topic": topic, "partition": number, "leader": node, "epoch": 0} for number in range(2)]
    lines = millstream.succeed("cluster", "services").lines
    assert any(line.split()[:1] == [b"kafka"] for line in lines)
    assert topic.encode() in millstream.succeed("cluster", "services", topic).output


def test_cluster_backups_reports_no_followers_on_a_single_broker(millstream: Command, topic: str) -> None:
    millstream.succeed("topic", "create", topic)
    (told,) = millstream.succeed("cluster", "backups", topic, "--json").documents
    (row,) = told["partitions"]
    assert (row["topic"], row["partition"], row["followers"]) == (topic, 0, [])
    assert (
        b"This cluster has one broker, so no partition has a backup." in millstream.succeed("cluster", "backups").lines
    )
    ended = millstream.run("cluster", "backups", f"{topic}-missing")
    assert ended.code == 1
    assert "no such topic" in ended.errors
