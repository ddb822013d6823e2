"""Generates the source messages of the queries; their content is a function of their number."""

import threading
from zlib import crc32

from millstream.sdk.sync.client import connect

KEYS = 50
PADDING = 2000
AT_ONCE = 500
AHEAD = 6_000
"""The most messages that the feeder may be ahead of the query that changes them."""


def key_of(number: int) -> bytes:
    return b"%d" % (number * 7919 % KEYS)


def value_of(number: int) -> bytes:
    return b"%d-" % number + b"x" * PADDING


def number_of(value: bytes) -> int:
    return int(value.partition(b"-")[0])


def brief(value: bytes) -> bytes:
    """Shorten a long value to its number and a checksum."""
    number, dash, _ = value.partition(b"-")
    return b"%b-%d" % (number, crc32(value)) if dash else value


class Feeder(threading.Thread):
    """Writes messages one after the other, and waits while the readers are too far behind."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(name="feeder", daemon=True)
        self.sent = 0
        self.changed = 0
        """The number of messages that are known to be changed."""
        self.failure: BaseException | None = None
        self.bootstrap = bootstrap
        self._topic = topic
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            with connect(self.bootstrap) as client, client.producer() as producer:
                while not self._stopping.is_set():
                    if self.sent >= self.changed + AHEAD:
                        self._stopping.wait(0.02)
                        continue
                    numbers = range(self.sent, self.sent + AT_ONCE)
                    keys = [key_of(number) for number in numbers]
                    producer.put_many(self._topic, [value_of(number) for number in numbers], keys=keys).result()
                    self.sent += AT_ONCE
        except BaseException as failure:
            self.failure = failure

    def stop(self) -> None:
        """Stop and wait until all sent messages are stored."""
        self._stopping.set()
        self.join()
        if self.failure is not None:
            raise AssertionError(f"the feeder failed: {self.failure!r}") from self.failure
