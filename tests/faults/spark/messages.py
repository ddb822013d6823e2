"""The messages that are read, counted and changed: what they hold follows from their numbers."""

import threading
from zlib import crc32

from millstream.sdk.sync.client import connect

KEYS = 50
PADDING = 2000
AT_ONCE = 500
AHEAD = 6_000
"""How many messages may wait for who changes them."""


def key_of(number: int) -> bytes:
    return b"%d" % (number * 7919 % KEYS)


def value_of(number: int) -> bytes:
    return b"%d-" % number + b"x" * PADDING


def number_of(value: bytes) -> int:
    return int(value.partition(b"-")[0])


def brief(value: bytes) -> bytes:
    """What readers keep of a long value: its number, and a checksum of all of it."""
    number, dash, _ = value.partition(b"-")
    return b"%b-%d" % (number, crc32(value)) if dash else value


class Feeder(threading.Thread):
    """Writes messages one after the other, as long as those who read them get on."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(name="feeder", daemon=True)
        self.sent = 0
        self.changed = 0
        """How many of them are known to have been changed."""
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
        """When this returns, everything that was sent is stored."""
        self._stopping.set()
        self.join()
        if self.failure is not None:
            raise AssertionError(f"the feeder failed: {self.failure!r}") from self.failure
