"""Tests the mechanics of the Spark bench: every row of its table is measured."""

from collections.abc import Iterator

import pytest
from bench.spark.__main__ import TARGETS, TINY, measure
from bench.spark.connector import Connector

from millstream.spark.java import java_environment
from spark.site import Site


@pytest.fixture
def connector() -> Iterator[Connector]:
    made = Connector(java_environment({}, bundled=True))
    yield made
    made.close()


def test_the_bench_measures_topics_files_and_the_kafka_connector(site: Site, connector: Connector) -> None:
    lines = measure(site.spark, connector, site.broker.bootstrap, site.files, TINY)
    for row in (*(each.title for each in TARGETS), "a batch of 200 rows", "a query without news"):
        assert any(line.startswith(f"| {row}") for line in lines)
