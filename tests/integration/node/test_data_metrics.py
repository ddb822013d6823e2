"""Tests that a scrape of a real broker shows its traffic, disks and consumer groups after a small load."""

import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import millstream
from millstream.testing.real_broker import RealBroker

WAIT_S = 60.0
MESSAGES = 10
READ = 4

Samples = dict[tuple[str, ...], float]
"""Values by metric and label values."""


def scrape(broker: RealBroker) -> Samples:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.operator_port}/metrics", timeout=WAIT_S) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {
        (sample.name.removeprefix("millstream_"), *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def scrape_until(broker: RealBroker, condition: Callable[[Samples], bool]) -> Samples:
    """Scrape until the condition is true. The test's timeout limits the loop."""
    while not condition(samples := scrape(broker)):
        pass
    return samples


def load(broker: RealBroker) -> None:
    """Write messages to a topic, and read and commit some of them."""
    with millstream.connect(broker.bootstrap) as client:
        client.create_topic("orders", partitions=2)
        with client.producer() as producer:
            producer.put_many("orders", [b"%d" % number for number in range(MESSAGES)], partition=1)
        with client.consumer("orders", group="readers", start="beginning", auto_commit=None) as consumer:
            read = 0
            while read < READ:
                read += len(consumer.poll(max_messages=READ - read))
            consumer.commit()


def test_a_scrape_shows_traffic_disks_and_groups_after_a_small_load(tmp_path: Path) -> None:
    directory = str(tmp_path / "data")
    with RealBroker(directory) as broker:
        load(broker)
        busy = ("partition_produced_bytes_total", "orders", "1")
        samples = scrape_until(broker, lambda found: busy in found)
    assert samples["topic_produced_messages_total", "orders"] == MESSAGES
    assert samples["topic_fetched_messages_total", "orders"] >= READ
    produced = samples["topic_produced_bytes_total", "orders"]
    assert 0 < produced <= samples["topic_fetched_bytes_total", "orders"]
    assert samples[busy] == produced
    of_topics = [value for (name, *_), value in samples.items() if name == "topic_produced_bytes_total"]
    assert sum(of_topics) == samples[("log_bytes",)], "nothing was removed"
    assert samples["group_lag", "readers", "orders", "1"] == MESSAGES - READ
    assert samples["group_commit_age_seconds", "readers"] >= 0

    for name in ("append_seconds", "flush_seconds", "group_commit_batches"):
        assert samples[f"{name}_count", directory] > 0, name
    assert samples["fsync_seconds_count", directory, "segment"] > 0
    assert samples["fsync_seconds_count", directory, "checkpoint"] > 0
    assert samples["fsync_seconds_sum", directory, "segment"] > 0
    assert samples["journal_bytes", directory] > 0
    total, free = (samples[f"directory_{name}_bytes", directory] for name in ("total", "free"))
    assert samples["directory_used_bytes", directory] == total - free > 0
    assert samples["directory_writes_refused", directory] == 0


@pytest.mark.parametrize("policy", ["interval", "os"])
def test_a_broker_without_group_commit_has_no_durations_of_rounds(policy: str, tmp_path: Path) -> None:
    directory = str(tmp_path / "data")
    with RealBroker(directory, extra_args=["--flush", policy]) as broker:
        load(broker)
        samples = scrape(broker)
    assert samples["topic_produced_messages_total", "orders"] == MESSAGES
    assert samples["append_seconds_count", directory] == samples["flush_seconds_count", directory] == 0
    assert samples["journal_bytes", directory] == 0
