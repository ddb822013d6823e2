"""Tests `millstream bench` against a real broker."""

import signal

import pytest

from builders.command import TIMEOUT_S, Command


@pytest.mark.parametrize(
    ("arguments", "latency"),
    [
        (("produce", "--count", "5000", "--partitions", "2", "--producers", "3", "--compression", "lz4"), {"put"}),
        (("produce", "--count", "500", "--acks", "0"), {"put"}),
        (("consume", "--count", "5000", "--partitions", "3"), {"fetch"}),
        (("latency", "--count", "20"), {"acknowledged", "read"}),
    ],
)
def test_a_load_is_measured_and_its_temporary_topic_is_deleted(
    millstream: Command, arguments: tuple[str, ...], latency: set[str]
) -> None:
    (document,) = millstream.succeed("bench", *arguments, "--size", "50", "--json").documents
    assert document["messages"] == int(arguments[2])
    assert document["bytes"] == 50 * document["messages"]
    assert document["seconds"] > 0
    assert document["latency_ms"].keys() == latency
    for row in document["latency_ms"].values():
        assert 0 < row["p50"] <= row["p90"] <= row["p99"] <= row["p99.9"] <= row["max"]
    (page,) = millstream.succeed("topic", "list", "--all", "--json").documents
    assert not [row for row in page["topics"] if row["name"].startswith("millstream-bench-")]


def test_text_output_is_a_summary_line_and_a_latency_table(millstream: Command) -> None:
    lines = millstream.succeed("bench", "produce", "--count", "100", "--size", "1KiB").output.decode().splitlines()
    assert lines[0].startswith("100 messages of 1024 B in ")
    assert lines[2].split() == ["ms", "mean", "p50", "p90", "p99", "p99.9", "max"]


def test_a_named_topic_is_used_and_not_deleted(millstream: Command, topic: str) -> None:
    millstream.succeed("topic", "create", topic)
    millstream.succeed("bench", "produce", "--count", "100", "--topic", topic)
    (document,) = millstream.succeed("bench", "consume", "--topic", topic, "--json").documents
    assert document["messages"] == 100
    assert len(millstream.succeed("get", topic).lines) == 100


def test_consume_reports_the_size_of_the_messages_that_it_read(millstream: Command, topic: str) -> None:
    millstream.succeed("put", topic, "three", "words", "there")
    lines = millstream.succeed("bench", "consume", "--topic", topic).output.decode().splitlines()
    assert lines[0].startswith("3 messages of 5 B in ")


def test_ctrl_c_deletes_the_temporary_topic(millstream: Command) -> None:
    def bench_topics() -> list[str]:
        (page,) = millstream.succeed("topic", "list", "--all", "--json").documents
        return [row["name"] for row in page["topics"] if row["name"].startswith("millstream-bench-")]

    with millstream.running("bench", "produce", "--count", "1000000000") as bench:
        while not bench_topics():
            assert bench.poll() is None
        bench.send_signal(signal.SIGINT)
        assert bench.wait(TIMEOUT_S) == 130
    assert bench_topics() == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("produce", "--size", "much"), "--size"),
        (("produce", "--size", "1GiB"), "--size"),
        (("produce", "--count", "0"), "--count"),
        (("produce", "--compression", "rar"), "--compression"),
        (("latency", "--acks", "2"), "--acks"),
    ],
)
def test_invalid_options_of_a_load_are_refused(millstream: Command, arguments: tuple[str, ...], named: str) -> None:
    ended = millstream.run("bench", *arguments)
    assert ended.code == 2
    assert named in ended.errors


def test_a_named_topic_that_does_not_exist_is_reported(millstream: Command, topic: str) -> None:
    ended = millstream.run("bench", "consume", "--topic", topic)
    assert ended.code == 1
    assert topic in ended.errors
