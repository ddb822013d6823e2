"""Reports problems with a broker's data: directories without end marks, hot partitions and slow disks."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

from millstream.node.health import NAMES_MAX, FindingSource
from millstream.partition.served.busy_partitions import BusyPartitions
from millstream.partition.served.partitions import Partitions
from millstream.process.findings import Finding
from millstream.storage.flush.flush_figures import SLOW_FLUSH_S
from millstream.storage.store import LogStore


def data_findings(partitions: Partitions) -> Sequence[FindingSource]:
    """Returns the sources of the findings about the data."""
    store = partitions.store
    return [partial(start_problems, store), partial(hot_partitions, partitions.busy), partial(slow_disks, store)]


def start_problems(store: LogStore) -> Iterator[Finding]:
    """Yields what the start could not verify in the data directories."""
    for directory in store.data_directories:
        if directory.end_marks.start_problem is not None:
            yield Finding(directory.end_marks.start_problem)


def hot_partitions(busy: BusyPartitions) -> Iterator[Finding]:
    """Yields a warning for each partition that gets more than half of the bytes of a busy topic."""
    for hot in islice(busy.hot, NAMES_MAX):
        yield Finding(
            f"partition {hot.topic}-{hot.number} gets {hot.share:.0%} of the bytes written to topic {hot.topic}"
            f" ({hot.topic_bytes_per_s / 1e6:.1f} MB/s, {hot.topic_partitions} partitions); spread the message keys",
            is_problem=False,
        )


def slow_disks(store: LogStore) -> Iterator[Finding]:
    """Yields a warning for each data directory whose flushes are slow."""
    for directory in store.data_directories:
        recent = directory.figures.recent()
        if recent.is_slow_disk:
            yield Finding(
                f"data directory {directory.path} is slow: {recent.slow} of {recent.total} flushes in the last minute"
                f" took more than {SLOW_FLUSH_S:g} s, and producers waited for them; check the disk and its other load",
                is_problem=False,
            )
