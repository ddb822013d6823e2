"""Reports what is wrong with the load on a broker's data: hot partitions."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

from millstream.node.health import NAMES_MAX, FindingSource
from millstream.partition.served.busy_partitions import BusyPartitions
from millstream.partition.served.partitions import Partitions
from millstream.process.findings import Finding


def data_findings(partitions: Partitions) -> Sequence[FindingSource]:
    """Returns the sources of the findings about the data."""
    return [partial(hot_partitions, partitions.busy)]


def hot_partitions(busy: BusyPartitions) -> Iterator[Finding]:
    """Yields a warning for each partition that gets more than half of the bytes of a busy topic."""
    for hot in islice(busy.hot, NAMES_MAX):
        yield Finding(
            f"partition {hot.topic}-{hot.number} gets {hot.share:.0%} of the bytes written to topic {hot.topic}"
            f" ({hot.topic_bytes_per_s / 1e6:.1f} MB/s, {hot.topic_partitions} partitions); spread the message keys",
            is_problem=False,
        )
