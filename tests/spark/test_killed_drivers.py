"""A driver that is killed at work, and started again from its checkpoint: nothing is lost, nothing doubled."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spark.counting import ROWS_PER_BATCH
from spark.site import LONG_S, Site

KEYS = 10
BATCHES = 12
KILLED_AT = (7, 31)
"""How many counts one partition has when the driver is killed: in the middle of what a batch writes, or nearly."""


@contextmanager
def driver(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with all that it has started, Spark's included."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    command = [sys.executable, "-m", "spark.counting", *arguments]
    process = subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(LONG_S)


def test_counts_are_stored_once_although_the_driver_is_killed_again_and_again(site: Site) -> None:
    target = f"{site.topic}-counts"
    site.client.create_topic(site.topic)
    site.client.create_topic(target, partitions=2)
    with site.client.producer() as producer:
        for number in range(BATCHES * ROWS_PER_BATCH):
            producer.put(site.topic, b"", key=b"%d" % (number % KEYS))
    arguments = (site.broker.bootstrap, site.topic, target, str(site.files / "checkpoint"))
    for offset in KILLED_AT:
        with driver(*arguments) as process:
            while not site.client.read(target, 0, offset, wait=1).messages:
                assert process.poll() is None, "the driver ended by itself"
    with driver(*arguments) as process:
        assert process.wait(LONG_S) == 0
    found: dict[bytes | None, list[int]] = {}
    for partition in range(2):
        offset = 0
        while messages := site.client.read(target, partition, offset).messages:
            for message in messages:
                found.setdefault(message.key, []).append(int(message.value or b""))
            offset = messages[-1].offset + 1
    each = ROWS_PER_BATCH // KEYS
    assert found == {b"%d" % key: [each * (batch + 1) for batch in range(BATCHES)] for key in range(KEYS)}
