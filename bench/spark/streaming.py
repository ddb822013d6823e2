"""Measures the minimum duration of a small batch of a stream, and the cost of a stream without new messages."""

import os
import tempfile
import time
from pathlib import Path

from bench.spark.ways import TOPIC, VALUE_BYTES, Place

BATCH_ROWS = 200


def stream(place: Place) -> tuple[list[float], float]:
    """Returns the milliseconds of each small batch, and the idle CPU of driver and workers in percent of a core."""
    extent = place.extent
    frame = place.spark.readStream.format("millstream").options(bootstrap=place.bootstrap, topic=TOPIC).load()
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as directory, place.client.producer(linger=0) as puts:
        query = frame.writeStream.format("noop").option("checkpointLocation", directory).start()
        try:
            query.processAllAvailable()
            for _ in range(extent.batches):
                puts.put_many(TOPIC, [b"v" * VALUE_BYTES] * BATCH_ROWS, partition=0).result()
                query.processAllAvailable()
            took_ms = [each["durationMs"]["triggerExecution"] for each in query.recentProgress if each["numInputRows"]]
            before_s = _cpu_s()
            time.sleep(extent.idle_s)
            after_s = _cpu_s()
        finally:
            query.stop()
    spent_s = sum(after_s[each] - before_s[each] for each in before_s.keys() & after_s.keys())
    return [float(each) for each in took_ms[extent.batches // 5 :]], spent_s / extent.idle_s * 100


def _cpu_s() -> dict[int, float]:
    """Returns the CPU seconds of this process and its descendants, without brokers and without the connector."""
    rows: dict[int, tuple[int, float]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, text = path.read_text().rpartition(") ")
            command = path.with_name("cmdline").read_bytes()
        except OSError:
            continue
        if b"\0serve\0" in command or b"connector_program" in command:
            continue  # Their descendants are skipped too, because their parents are then unknown.
        fields = text.split()
        spent_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        rows[int(path.parent.name)] = int(fields[1]), spent_s
    family = {os.getpid()}
    while more := {number for number, (parent, _) in rows.items() if parent in family} - family:
        family |= more
    return {number: rows[number][1] for number in family & rows.keys()}
