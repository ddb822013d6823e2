"""Provides one Spark session and one broker for all Spark tests. Both are real, and the session takes long to start."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millstream.sdk.sync.client import Client, connect
from millstream.spark import session
from millstream.testing import EmbeddedBroker
from spark.site import SETTINGS, Site

_numbers = count()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    found = session("tests", master="local[2]", java="bundled", settings=SETTINGS)
    found.sparkContext.setLogLevel("OFF")
    yield found
    found.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture(scope="session")
def client(broker: EmbeddedBroker) -> Iterator[Client]:
    with connect(broker.bootstrap) as connected:
        yield connected


@pytest.fixture
def site(spark: SparkSession, broker: EmbeddedBroker, client: Client, tmp_path: Path) -> Site:
    """The environment of one test, with a topic name of its own."""
    return Site(spark, broker, client, tmp_path, f"topic-{next(_numbers)}")
