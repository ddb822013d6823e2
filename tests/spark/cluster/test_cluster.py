"""Tests the format "millstream" on a Spark cluster: a master, two workers, and a separate driver."""

import os
import sys
import tarfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from bench.peers import ROOT
from bench.servant import Servant

from millstream.model.names import TopicPartition
from millstream.sdk.sync.client import Client
from millstream.testing import EmbeddedBroker
from spark.cluster.machines import Cluster, packed
from spark.site import until

WORKERS = 2
PARTITIONS = 4
PATIENCE_S = 240.0

_numbers = count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), WORKERS) as running:
        yield running


@pytest.fixture(scope="module")
def driver(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servant]:
    """A driver with the same environment as the executors, in a directory like theirs."""
    here = tmp_path_factory.mktemp("driver")
    archive = packed(here, sys.executable)
    with tarfile.open(archive) as file:
        file.extractall(here / "environment", filter="data")
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
    settings = (f"PYTHONPATH={path}", "PYSPARK_PYTHON=./environment/bin/python")
    program = ("./environment/bin/python", "-m", "spark.cluster.driver", cluster.master, str(archive))
    servant = Servant(["env", f"--chdir={here}", *settings, *program], PATIENCE_S)
    yield servant
    servant.close()


@pytest.fixture
def topic(client: Client) -> str:
    name = f"clustered-{next(_numbers)}"
    client.create_topic(name, partitions=PARTITIONS)
    return name


def fill(client: Client, topic: str, rows: int) -> None:
    with client.producer() as producer:
        for number in range(rows):
            producer.put(topic, b"%d" % number, key=b"%d" % (number % 10), partition=number % PARTITIONS)


def test_all_workers_read_a_topic_and_exchange_rows(
    broker: EmbeddedBroker, client: Client, cluster: Cluster, driver: Servant, topic: str
) -> None:
    fill(client, topic, 1_000)
    options = {"bootstrap": broker.bootstrap, "topic": topic, "minPartitions": str(PARTITIONS)}
    assert driver.ask("read", options=options) == list(range(1_000))
    assert driver.ask("count", options=options) == {str(key): 100 for key in range(10)}
    assert len(driver.ask("tasks")) == WORKERS
    assert cluster.uses_of_python() == WORKERS


def test_workers_archive_a_topic_and_read_archive_and_topic_as_one(
    broker: EmbeddedBroker, client: Client, driver: Servant, topic: str, tmp_path: Path
) -> None:
    fill(client, topic, 1_000)
    asked = {"topic": topic, "to": str(tmp_path), "bootstrap": broker.bootstrap}
    assert driver.ask("archive", **asked) == 1_000
    client.admin.delete_records({TopicPartition(topic, partition): 200 for partition in range(PARTITIONS)})
    fill(client, topic, 100)
    options = {"bootstrap": broker.bootstrap, "topic": topic, "archive": str(tmp_path), "minPartitions": "8"}
    assert driver.ask("read", options=options) == sorted([*range(1_000), *range(100)])


PIPELINE = """
from pyspark.sql.functions import udf

def half(value):
    return str(int(value) // 2)

rows = spark.readStream.format("millstream").option("bootstrap", bootstrap).option("topic", "TOPIC")
rows = rows.option("startingOffsets", "earliest").load().select("key", udf(half)("value").alias("value"))
writer = rows.writeStream.queryName("halves").option("checkpointLocation", "CHECKPOINT")
writer.format("millstream").option("bootstrap", bootstrap).option("topic", "TOPIC-halves").start()
"""


def test_functions_of_a_pipeline_file_run_on_the_workers(
    broker: EmbeddedBroker, client: Client, driver: Servant, topic: str, tmp_path: Path
) -> None:
    fill(client, topic, 100)
    client.create_topic(f"{topic}-halves", partitions=2)
    file = tmp_path / "halves.py"
    file.write_text(PIPELINE.replace("TOPIC", topic).replace("CHECKPOINT", str(tmp_path / "checkpoint")))
    assert driver.ask("run", file=str(file), bootstrap=broker.bootstrap) == [["halves", 100]]
    assert values(client, f"{topic}-halves") == sorted(number // 2 for number in range(100))


def test_a_stream_is_stored_once_when_workers_are_lost(
    broker: EmbeddedBroker, client: Client, cluster: Cluster, driver: Servant, topic: str, tmp_path: Path
) -> None:
    rows, batch = 20_000, 2_000
    fill(client, topic, rows)
    target = f"{topic}-copy"
    client.create_topic(target, partitions=2)
    driver.ask(
        "start",
        options={
            "bootstrap": broker.bootstrap,
            "topic": topic,
            "startingOffsets": "earliest",
            "minPartitions": str(PARTITIONS),
            "maxRowsPerTrigger": str(batch),
        },
        to={"bootstrap": broker.bootstrap, "topic": target},
        checkpoint=str(tmp_path / "checkpoint"),
    )
    stored_until(client, target, batch // 4)
    cluster.kill_worker(cluster.workers[0])
    cluster.add_worker()
    stored_until(client, target, rows // 4)
    cluster.kill_worker(cluster.workers[1])
    assert sum(driver.ask("finish")) == rows
    assert values(client, target) == list(range(rows))


def stored_until(client: Client, topic: str, offset: int) -> None:
    until(lambda: bool(client.read(topic, 0, offset, wait=1).messages), f"offset {offset} of {topic} is stored")


def values(client: Client, topic: str) -> list[int]:
    found = []
    for partition in range(2):
        offset = 0
        while messages := client.read(topic, partition, offset).messages:
            found += [int(message.value or b"") for message in messages]
            offset = messages[-1].offset + 1
    return sorted(found)
