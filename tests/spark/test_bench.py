"""The mechanics of the bench of Spark: each of the rows is measured."""

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


def test_topics_are_measured_beside_files_and_the_connector(site: Site, connector: Connector) -> None:
    lines = measure(site.spark, connector, site.broker.bootstrap, site.files, TINY)
    for row in (*(each.title for each in TARGETS), "a batch of 200 rows", "a query without news"):
        assert any(line.startswith(f"| {row}") for line in lines)
