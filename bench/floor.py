"""Measures the floor: a server in C that only moves the bytes of the raw tool's requests.

No broker can be cheaper. Its cost is the kernel's: receive and write, or read and send, and wake the waiting thread.
The difference to it is a broker's own work, which a broker can reduce.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.driver import Driver, batch_file
from bench.peers import WORK, Peer

FLOOR = WORK / "floor"


class Floor(Peer):
    """The floor server for batches of one kind; `send` is how it answers readers: `sendfile`, or `copy` through a
    buffer.
    """

    flush_settings: Mapping[str, str] = {}

    def __init__(self, directory: Path, send: str, batch: Path, records: int) -> None:
        super().__init__(directory)
        self.name = f"floor, {send}"
        self._send = send
        self._batch = batch
        self._records = records

    def prepare(self) -> None:
        (self.directory / "data").mkdir()

    def command(self, *, flush_always: bool) -> Sequence[str]:
        return [
            str(FLOOR),
            *("--port", str(self.port)),
            *("--file", str(self.directory / "data" / "log")),
            *("--batch-bytes", str(self._batch.stat().st_size)),
            *("--records", str(self._records)),
            *("--send", self._send),
        ]

    def version(self) -> str:
        return f"bench/floor.c, {self._send}"


class FloorDriver(Driver):
    """A driver without topics: each topic is a server with a file of its own."""

    @contextmanager
    def topics(self, count: int, partitions: int, settings: Mapping[str, str] | None = None) -> Iterator[list[str]]:
        self.peer.start()
        try:
            yield ["floor"] * count
        finally:
            self.peer.stop()

    def write_first(self, topics: list[str], partitions: int = 1, writes: int = 1) -> None:
        """Does nothing: the floor server has no one-time costs."""


def floors(directory: Path, size: int, records: int, *, settles: bool) -> list[FloorDriver]:
    """Returns one driver for each way of answering readers."""
    batch = batch_file(records, size)
    return [
        FloorDriver(Floor(directory / f"floor-{send}", send, batch, records), settles=settles)
        for send in ("sendfile", "copy")
    ]
