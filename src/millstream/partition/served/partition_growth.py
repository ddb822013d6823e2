"""Adds partitions to an existing topic, in an order of steps that a crash may interrupt anywhere.

First the catalog stores rows for the new partitions. Then their logs are created. Then the catalog marks the growth as
finished, and only then are the partitions served. After a crash the next start completes the growth: it creates missing
logs for the stored rows and finishes the growth. So no log is ever without a row, and no finished partition is without
a log.

After a failure of a running broker, `settle` restores consistency. A commit that reported an error may still have
happened, so `settle` asks the catalog. Either it removes the logs and then the rows, or it finds the growth finished.
Until `settle` succeeds, clients see the topic unchanged. A crash before that completes the growth, although its caller
got an error.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from millstream.catalog.catalog import Catalog, Topic, TopicState
from millstream.model.ids import BrokerId
from millstream.model.names import PartitionKey
from millstream.partition.served.partition_startup import create_logs, remove_logs
from millstream.storage.log.log import Log
from millstream.storage.store import LogStore
from millstream.topics.settings import TopicSettings


async def grow(
    catalog: Catalog, store: LogStore, topic: Topic, count: int, nodes: Sequence[BrokerId], settings: TopicSettings
) -> list[Log]:
    """Grow a ready topic to `count` partitions and return the logs of the new ones.

    After an error the caller must call `settle`.
    """
    await catalog.begin_growth(topic.topic_id, [nodes] * (count - topic.partitions))
    logs = await create_logs(store, replace(topic, growing_to=count), settings)
    await catalog.finish_growth(topic.topic_id)
    return logs[topic.partitions :]


async def settle(catalog: Catalog, store: LogStore, topic: Topic) -> list[Log]:
    """Make catalog and logs consistent after a failed growth, and return the logs of the partitions that were added.

    May be repeated. Raises while the catalog or the disk still fails.
    """
    stored = next((found for found in await catalog.topics() if found.topic_id == topic.topic_id), None)
    if stored is None or stored.state is not TopicState.READY:
        return []
    if stored.growing_to:
        await remove_logs(store, _keys(topic, first=stored.partitions, end=stored.growing_to))
        await catalog.abandon_growth(topic.topic_id)
    logs = [store.get(key) for key in _keys(topic, first=topic.partitions, end=stored.partitions)]
    assert all(logs), "a finished partition has a log"
    return [log for log in logs if log is not None]


def _keys(topic: Topic, *, first: int, end: int) -> list[PartitionKey]:
    return [PartitionKey(topic.topic_id, number) for number in range(first, end)]
