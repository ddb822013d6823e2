"""Runs Apache Kafka 4.3, so that the suite can be verified against it."""

from pathlib import Path
from types import TracebackType
from typing import Self

from bench.peers import Kafka

from interop.clients.java import build


class KafkaBroker(Kafka):
    """A Kafka broker with the part of `RealBroker`'s interface that the tests need."""

    heap = "512m"

    def __init__(self, directory: Path, host: str = "127.0.0.1") -> None:
        super().__init__(directory, build(), host)

    def prepare(self) -> None:
        super().prepare()
        with (self.directory / "server.properties").open("a") as properties:
            # Faster start: the internal topic is created with the first group.
            properties.write("offsets.topic.num.partitions=4\ngroup.consumer.heartbeat.interval.ms=500\n")
            properties.write("group.consumer.min.heartbeat.interval.ms=500\n")

    def restart(self) -> None:
        """Stop the broker and start it on the same port and data."""
        self.end()
        self.launch()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
