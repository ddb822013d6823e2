"""Tests the examples of docs/spark.md and docs/archive.md, with only topics and files replaced."""

import re
from pathlib import Path
from typing import Any

import pytest

from millstream.model.default_bootstrap import BOOTSTRAP_VARIABLE
from spark.site import Site, forget_last_commit

DOCS = Path(__file__).parents[2] / "docs"


class Page:
    """The examples of a page, which run one after the other in one namespace."""

    def __init__(self, site: Site, name: str = "spark.md") -> None:
        self._site = site
        self.names: dict[str, Any] = {}
        self.blocks = re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), flags=re.DOTALL)

    def run(self, block: str) -> None:
        """Runs a block. A query that it starts has read everything, and is stopped, when this returns."""
        for word in ("checkpoints", "files"):
            block = block.replace(f'"{word}/', f'"{self._site.files}/{word}/')
        block = block.replace("localhost:9092", self._site.broker.bootstrap)
        for topic in ("orders", "counts", "counts-by-hand", "loud-orders", "prices"):
            block = block.replace(f'"{topic}"', f'"{self._site.topic}-{topic}"')
        exec(block, self.names)
        if "query" in self.names:
            query = self.names.pop("query")
            try:
                query.processAllAvailable()
            finally:
                query.stop()

    def stored(self, topic: str) -> list[tuple[bytes, bytes]]:
        rows = self._site.read("key BINARY, value BINARY", topic=f"{self._site.topic}-{topic}").collect()
        return sorted((bytes(row.key or b""), bytes(row.value)) for row in rows)


@pytest.fixture
def page(site: Site, monkeypatch: pytest.MonkeyPatch) -> Page:
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, site.broker.bootstrap)
    site.client.create_topic(f"{site.topic}-orders", partitions=2)
    sell(site, 100)
    site.client.create_topic(f"{site.topic}-prices")
    site.write(['{"item": "tea", "price": 2.5, "seen": "2026-01-31T12:00:00Z"}'], topic=f"{site.topic}-prices")
    return Page(site)


def sell(site: Site, orders: int) -> None:
    with site.client.producer() as producer:
        for number in range(orders):
            producer.put(f"{site.topic}-orders", b"tea", key=b"%d" % (number % 10))


def test_the_examples_of_the_spark_page_work_and_repeated_updates_are_stored_once(page: Page, site: Site) -> None:
    for block in page.blocks:
        page.run(block)
    assert page.stored("counts") == page.stored("counts-by-hand") == [(b"%d" % key, b"10") for key in range(10)]
    assert page.stored("loud-orders") == [(b"%d" % (number // 10), b"TEA") for number in range(100)]
    assert site.spark.read.parquet(str(site.files / "files" / "orders")).count() == 100
    forget_last_commit(site.files / "checkpoints" / "counts")
    sell(site, 50)
    page.run(page.blocks[0])
    assert page.stored("counts") == [(b"%d" % key, b"%d" % count) for key in range(10) for count in (10, 15)]


def test_the_examples_of_the_archive_page_work(page: Page, site: Site) -> None:
    archives = Page(site, "archive.md")
    for block in archives.blocks:
        archives.run(block)
    assert archives.names["history"].count() == archives.names["rows"].count() == 100
