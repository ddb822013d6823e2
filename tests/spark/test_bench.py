"""The mechanics of the bench of Spark: each of the rows is measured."""

from bench.spark.__main__ import Extent, measure

from spark.site import Site


def test_topics_are_measured_beside_files(site: Site) -> None:
    lines = measure(site.spark, site.broker.bootstrap, site.files, Extent(5_000, 1, 2, 0.1))
    for row in ("all columns, thrown away", "rows counted by key", "a batch of 200 rows", "a query without news"):
        assert any(line.startswith(f"| {row}") for line in lines)
