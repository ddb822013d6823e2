"""Tests `millstream group` and `millstream tail` against a real broker."""

import json
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

import millstream
from builders.command import TIMEOUT_S, Command
from builders.terminal import Terminal
from millstream.testing.real_broker import RealBroker


@pytest.fixture
def group(topic: str) -> str:
    return f"of-{topic}"


@pytest.fixture(scope="module")
def client(broker: RealBroker) -> Iterator[millstream.Client]:
    with millstream.connect(broker.bootstrap) as connected:
        yield connected


@pytest.fixture
def filled(client: millstream.Client, topic: str) -> str:
    """Returns a topic with two partitions and ten messages in each."""
    client.create_topic(topic, partitions=2)
    with client.producer() as producer:
        for partition in (0, 1):
            for number in range(10):
                producer.put(topic, f"{partition}-{number}".encode(), partition=partition)
    return topic


@contextmanager
def consuming(broker: RealBroker, group: str, topic: str, protocol: str) -> Iterator[Consumer]:
    """Yields a consumer of librdkafka that has read and committed everything."""
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "client.id": "billing",
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe([topic])
        seen = 0
        while seen < 20:
            for message in consumer.consume(20, 1.0):
                assert message.error() is None
                seen += 1
        consumer.commit(asynchronous=False)
        yield consumer
    finally:
        consumer.close()


def test_control_characters_in_group_names_are_escaped(broker: RealBroker, millstream: Command, filled: str) -> None:
    hostile, escaped = "esc\x1b[31mRED\x1b]0;t\x07[red]", r"esc\x1b[31mRED\x1b]0;t\x07[red]"
    for name in (hostile, "g" * 30_000):
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name})
        consumer.commit(offsets=[TopicPartition(filled, 0, 3)], asynchronous=False)
        consumer.close()
    listed = millstream.succeed("group", "list").output.decode()
    assert escaped in listed
    assert "\x1b" not in listed
    assert max(map(len, listed.splitlines())) < 500
    told = millstream.succeed("group", "describe", hostile).output.decode()
    assert told.startswith(f"{escaped}: empty")
    documents = millstream.succeed("group", "list", "--json").documents[0]
    assert {hostile, "g" * 30_000} <= {row["group"] for row in documents}


def described(millstream: Command, group: str) -> Any:
    (document,) = millstream.succeed("group", "describe", group, "--json").documents
    return document


def committed(millstream: Command, group: str) -> dict[int, int]:
    return {row["partition"]: row["committed"] for row in described(millstream, group)["partitions"]}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_of_both_protocols_are_described_with_members_and_lag(
    broker: RealBroker, millstream: Command, filled: str, group: str, protocol: str
) -> None:
    with consuming(broker, group, filled, protocol):
        millstream.succeed("put", filled, "more", "--partition", "1")
        document = described(millstream, group)
        assert (document["group"], document["kind"], document["state"]) == (group, protocol, "Stable")
        (member,) = document["members"]
        assert (member["client_id"], member["topics"], len(member["partitions"])) == ("billing", [filled], 2)
        rows = [(row["partition"], row["committed"], row["end"], row["lag"]) for row in document["partitions"]]
        assert rows[0] == (0, 10, 10, 0)
        assert rows[1][:2] == (1, 10)
        assert {row["member_id"] for row in document["partitions"]} == {member["member_id"]}
        listed = millstream.succeed("group", "list", "--state", "Stable", "--json").documents[0]
        assert group in [row["group"] for row in listed]
        text = millstream.succeed("group", "describe", group).output.decode()
        assert text.startswith(f"{group}: stable, 1 member\n")
        assert "billing" in text


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_not_reset_or_deleted(
    broker: RealBroker, millstream: Command, filled: str, group: str, protocol: str
) -> None:
    with consuming(broker, group, filled, protocol):
        for command in (("reset", group, "--to", "beginning", "--yes"), ("delete", group, "--yes")):
            ended = millstream.run("group", *command)
            assert ended.code == 1
            assert "Stop its consumers" in ended.errors
        preview = millstream.succeed("group", "reset", group, "--to", "beginning", "--dry-run").output.decode()
        assert "A reset would be refused now" in preview
        assert "20 messages will be read again" in preview
        assert committed(millstream, group) == {0: 10, 1: 10}


@pytest.fixture
def finished(client: millstream.Client, filled: str, group: str) -> str:
    """Returns a group that has committed everything and has no members."""
    client.groups.commit(group, {millstream.TopicPartition(filled, partition): 10 for partition in (0, 1)})
    return group


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--to", "beginning"), {0: 0, 1: 0}),
        (("--to", "4"), {0: 4, 1: 4}),
        (("--to", "99"), {0: 10, 1: 10}),
        (("--to", "-3"), {0: 7, 1: 7}),
        (("--to", "-30"), {0: 0, 1: 0}),
        (("--to", "1h"), {0: 0, 1: 0}),
        (("--to", "2030-01-01"), {0: 10, 1: 10}),
        (("--to", "beginning", "--topic", "{topic}", "--partition", "1"), {0: 10, 1: 0}),
    ],
)
def test_reset_moves_the_committed_offsets(
    millstream: Command, filled: str, finished: str, flags: tuple[str, ...], expected: dict[int, int]
) -> None:
    chosen = [flag.format(topic=filled) for flag in flags]
    (dry,) = millstream.succeed("group", "reset", finished, *chosen, "--dry-run", "--json").documents
    assert committed(millstream, finished) == {0: 10, 1: 10}
    (done,) = millstream.succeed("group", "reset", finished, *chosen, "--yes", "--json").documents
    assert (dry["reset"], done["reset"]) == (False, True)
    assert dry["partitions"] == done["partitions"]
    assert done["again"] == 20 - sum(expected.values())
    assert committed(millstream, finished) == expected


def test_reset_sets_the_offsets_of_a_new_group(millstream: Command, filled: str, group: str) -> None:
    assert millstream.run("group", "reset", group, "--to", "3", "--yes").code == 1
    millstream.succeed("group", "reset", group, "--to", "8", "--topic", filled, "--yes")
    lines = millstream.succeed("tail", filled, "--group", group, "--limit", "4").lines
    assert sorted(lines) == [b"0-8", b"0-9", b"1-8", b"1-9"]


def test_reset_shows_its_effect_and_asks_for_confirmation(millstream: Command, finished: str) -> None:
    with Terminal(millstream, "group", "reset", finished, "--to", "-2") as terminal:
        terminal.expect("4 messages will be read again, 0 skipped.")
        terminal.expect("Reset it?")
        terminal.type("n\n")
        assert terminal.ended() == 1
    assert committed(millstream, finished) == {0: 10, 1: 10}
    ended = millstream.run("group", "reset", finished, "--to", "-2")
    assert (ended.code, "add --yes" in ended.errors) == (2, True)


def test_a_group_is_deleted_with_its_committed_offsets(millstream: Command, finished: str) -> None:
    assert millstream.succeed("group", "delete", finished, "--yes").output == f"Deleted group {finished}.\n".encode()
    ended = millstream.run("group", "describe", finished, "--json")
    assert ended.code == 1
    assert json.loads(ended.errors)["error"] == "GROUP_ID_NOT_FOUND"


def test_a_group_can_be_described_after_its_topic_was_deleted(millstream: Command, filled: str, group: str) -> None:
    millstream.succeed("topic", "create", f"{filled}-2")
    millstream.succeed("put", f"{filled}-2", "x")
    millstream.succeed("tail", filled, f"{filled}-2", "--group", group, "--from", "beginning", "--limit", "21")
    millstream.succeed("topic", "delete", f"{filled}-2", "--yes")
    assert committed(millstream, group) == {0: 10, 1: 10}


def test_tail_prints_new_messages_by_default(millstream: Command, filled: str) -> None:
    with millstream.running("tail", filled, "--json") as tail:
        assert tail.stdout is not None
        # Messages written before tail listens are not printed, so the test writes until one is.
        while not _readable(tail):
            millstream.succeed("put", filled, "live")
        assert json.loads(tail.stdout.readline())["value"] == "live"


def _readable(process: "subprocess.Popen[bytes]") -> bool:
    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], 0.2)[0])


def test_tail_reads_a_partition_from_an_offset_up_to_a_limit(millstream: Command, filled: str) -> None:
    lines = millstream.succeed("tail", filled, "--from", "7", "--partition", "1", "--limit", "2").lines
    assert lines == [b"1-7", b"1-8"]


def test_tail_follows_several_topics_at_once(millstream: Command, filled: str) -> None:
    millstream.succeed("put", f"{filled}-b", "b")
    documents = millstream.succeed(
        "tail", filled, f"{filled}-b", "--from", "beginning", "--limit", "21", "--json"
    ).documents
    assert {document["topic"] for document in documents} == {filled, f"{filled}-b"}
    assert len(documents) == 21


def test_tail_with_a_limit_commits_only_the_printed_messages(millstream: Command, filled: str, group: str) -> None:
    seen: list[bytes] = []
    for _ in range(4):
        seen += millstream.succeed("tail", filled, "--group", group, "--from", "beginning", "--limit", "5").lines
    assert sorted(seen) == sorted(b"%d-%d" % (p, n) for p in range(2) for n in range(10))


def test_ctrl_c_makes_tail_commit_and_leave_the_group(millstream: Command, filled: str, group: str) -> None:
    with millstream.running("tail", filled, "--group", group, "--from", "beginning") as tail:
        assert tail.stdout is not None
        for _ in range(20):
            tail.stdout.readline()
        tail.send_signal(signal.SIGINT)
        assert tail.wait(TIMEOUT_S) == 130
        assert tail.stderr is not None
        assert tail.stderr.read() == b""
    document = described(millstream, group)
    assert (document["members"], document["lag"]) == ([], 0)
    assert committed(millstream, group) == {0: 10, 1: 10}


def test_two_tails_of_a_group_share_the_partitions(millstream: Command, filled: str, group: str) -> None:
    flags = ("tail", filled, "--group", group, "--from", "beginning", "--json")
    with millstream.running(*flags) as first, millstream.running(*flags) as second:
        while not _is_shared(millstream, group):
            pass
        for tail in (first, second):
            tail.send_signal(signal.SIGINT)
            assert tail.wait(TIMEOUT_S) == 130
        outputs = [tail.communicate(timeout=TIMEOUT_S)[0] for tail in (first, second)]
    seen = {json.loads(line)["value"] for output in outputs for line in output.splitlines()}
    lag = described(millstream, group)["lag"]
    assert len(seen) + lag >= 20


def _is_shared(millstream: Command, group: str) -> bool:
    ended = millstream.run("group", "describe", group, "--json")
    members = ended.documents[0]["members"] if ended.code == 0 else ()
    return [len(member["partitions"]) for member in members] == [1, 1]


def test_tail_of_a_missing_topic_suggests_a_similar_name(millstream: Command, filled: str) -> None:
    for flags in ((), ("--group", "g")):
        ended = millstream.run("tail", f"{filled}x", *flags)
        assert ended.code == 1
        assert f"did you mean {filled}" in ended.errors
