"""Tests Kafka's command line tools against Millstream."""

import json
import re
from collections.abc import Callable, Mapping

import pytest

from interop.clients.client import Client, Message
from interop.clients.java_tools import TOOLS, JavaToolsClient

COUNT = 500


@pytest.fixture
def tools(clients: Mapping[str, Client]) -> JavaToolsClient:
    client = clients["java-tools"]
    assert isinstance(client, JavaToolsClient)
    return client


def events(output: str) -> list[Mapping[str, object]]:
    return [json.loads(line) for line in output.splitlines()]


def test_the_verifiable_producer_and_consumer_agree(
    tools: JavaToolsClient, new_topic: Callable[..., str], new_name: Callable[[], str]
) -> None:
    topic = new_topic(3)
    produced = tools.apart(f"{TOOLS}.VerifiableProducer", "--topic", topic, "--max-messages", str(COUNT))
    acknowledged = [event["value"] for event in events(produced.output) if event["name"] == "producer_send_success"]
    assert sorted(map(int, map(str, acknowledged))) == list(range(COUNT))
    assert events(produced.output)[-1]["acked"] == COUNT
    wanted = ("--topic", topic, "--group-id", new_name(), "--max-messages", str(COUNT), "--verbose")
    consumed = tools.tool(f"{TOOLS}.VerifiableConsumer", *wanted)
    values = [event["value"] for event in events(consumed.output) if event["name"] == "record_data"]
    assert sorted(map(int, map(str, values))) == list(range(COUNT))
    committed = [event for event in events(consumed.output) if event["name"] == "offsets_committed"]
    assert committed
    assert all(event["success"] for event in committed)


def test_the_performance_tools_produce_and_consume(tools: JavaToolsClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    load = ("--topic", topic, "--num-records", str(COUNT), "--record-size", "100", "--throughput", "-1")
    produced = tools.tool(f"{TOOLS}.ProducerPerformance", *load)
    assert f"{COUNT} records sent" in produced.output, produced
    consumed = tools.tool(f"{TOOLS}.ConsumerPerformance", "--topic", topic, "--num-records", str(COUNT))
    heading, figures = (line.split(", ") for line in consumed.output.splitlines()[-2:])
    row = dict(zip(heading, figures, strict=True))
    assert int(row["data.consumed.in.nMsg"]) == COUNT


def test_the_versions_of_all_requests_are_listed(tools: JavaToolsClient) -> None:
    said = tools.tool(f"{TOOLS}.BrokerApiVersionsCommand")
    rows = dict(re.findall(r"^\s+(\w+)\(\d+\): (.*?),?$", said.output, flags=re.MULTILINE))
    assert rows["Produce"].endswith("[usable: 13]")
    assert rows["Fetch"].endswith("[usable: 18]")
    assert rows["ConsumerGroupHeartbeat"].endswith("[usable: 1]")


def test_the_offsets_of_all_topics_are_listed(
    tools: JavaToolsClient, clients: Mapping[str, Client], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    clients["confluent-kafka"].write(topic, 1, [Message(b"one")] * 3)
    latest = tools.tool(f"{TOOLS}.GetOffsetShell", "--topic", topic)
    assert latest.output.split() == [f"{topic}:0:0", f"{topic}:1:3"]
    newest = tools.tool(f"{TOOLS}.GetOffsetShell", "--topic-partitions", f"{topic}:1", "--time", "max-timestamp")
    place, _, offset = newest.output.strip().rpartition(":")
    assert place == f"{topic}:1"
    assert int(offset) in range(3)


def test_the_sizes_of_logs_are_listed(
    tools: JavaToolsClient, clients: Mapping[str, Client], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    clients["confluent-kafka"].write(topic, 1, [Message(b"x" * 10_000)])
    said = tools.tool(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", topic)
    (told,) = (json.loads(line) for line in said.output.splitlines() if line.startswith("{"))
    (broker,) = told["brokers"]
    sizes = {row["partition"]: row["size"] for directory in broker["logDirs"] for row in directory["partitions"]}
    assert sizes.keys() == {f"{topic}-0", f"{topic}-1"}
    assert sizes[f"{topic}-0"] == 0
    assert sizes[f"{topic}-1"] > 10_000


def test_topics_are_described_with_their_replicas(tools: JavaToolsClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2, settings={"retention.ms": "7200000"})
    said = tools.tool(f"{TOOLS}.TopicCommand", "--describe", "--topic", topic)
    assert re.search(rf"Topic: {topic}\s+TopicId: \S+\s+PartitionCount: 2\s+ReplicationFactor: 1", said.output)
    assert "retention.ms=7200000" in said.output
    rows = re.findall(r"Partition: (\d)\s+Leader: (\d+)\s+Replicas: (\d+)\s+Isr: (\d+)", said.output)
    assert rows == [(str(number), "1", "1", "1") for number in range(2)]


def test_a_setting_is_reset_and_an_invalid_one_is_refused(
    tools: JavaToolsClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(settings={"retention.ms": "7200000"})
    entity = ("--entity-type", "topics", "--entity-name", topic, "--alter")
    assert tools.tool("kafka.admin.ConfigCommand", *entity, "--delete-config", "retention.ms").code == 0
    assert not tools.settings(topic)["retention.ms"].is_own
    refused = tools.tool("kafka.admin.ConfigCommand", *entity, "--add-config", "retention.ms=soon")
    assert refused.code == 1
    assert "InvalidConfigurationException" in refused.output + refused.errors


def test_an_offset_reset_with_dry_run_shows_the_offsets_and_changes_nothing(
    tools: JavaToolsClient, clients: Mapping[str, Client], new_topic: Callable[..., str], new_name: Callable[[], str]
) -> None:
    topic, group = new_topic(), new_name()
    clients["confluent-kafka"].write(topic, 0, [Message(b"%d" % number) for number in range(10)])
    tools.reset_group(group, topic, {0: 7})
    command = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    to_begin = ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest")
    shown = tools.tool(command, *to_begin, "--dry-run")
    assert shown.output.split()[-3:] == [topic, "0", "0"]
    assert tools.committed(group, topic) == {0: 7}
    back = ("--reset-offsets", "--group", group, "--topic", topic, "--shift-by", "-2", "--execute")
    assert tools.tool(command, *back).code == 0
    assert tools.committed(group, topic) == {0: 5}


def test_the_console_consumer_continues_at_its_committed_offset(
    tools: JavaToolsClient, clients: Mapping[str, Client], new_topic: Callable[..., str], new_name: Callable[[], str]
) -> None:
    topic, group = new_topic(), new_name()
    clients["confluent-kafka"].write(topic, 0, [Message(b"%d" % number) for number in range(10)])
    read = ("--topic", topic, "--group", group, "--from-beginning", "--timeout-ms", "30000", "--max-messages", "5")
    parts = [tools.tool(f"{TOOLS}.consumer.ConsoleConsumer", *read).output.split() for _ in range(2)]
    assert parts == [["0", "1", "2", "3", "4"], ["5", "6", "7", "8", "9"]]
