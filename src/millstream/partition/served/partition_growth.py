"""More partitions for a topic that is there: catalog and logs, in an order that a crash may break off anywhere.

The catalog notes the new partitions first, then their logs are made, then the catalog counts them in; only then are
they served. What a crash leaves is finished at the next start: rows that are noted get the logs they lack and are
counted in, so nothing that has a log is ever without a row, and nothing that counts without its log.

What a failure leaves while the broker runs is undone by `settle`: it asks the catalog which of the two it was, since a
commit that reported an error may have happened, and either takes the logs and then the rows away again, or finds the
partitions counted in. Until it succeeds the topic is as it was for everybody; a crash before that finishes what was
begun, although whoever asked for it was told of an error.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from millstream.catalog.catalog import Catalog, Topic, TopicState
from millstream.model.names import PartitionKey
from millstream.partition.served.partition_startup import create_logs, remove_logs
from millstream.storage.log.log import Log
from millstream.storage.store import LogStore
from millstream.topics.settings import TopicSettings


async def grow(
    catalog: Catalog, store: LogStore, topic: Topic, count: int, nodes: Sequence[int], settings: TopicSettings
) -> list[Log]:
    """Make a ready topic one of `count` partitions, and give the logs of those it has more; after an error, `settle`
    must be called."""
    await catalog.begin_growth(topic.topic_id, [nodes] * (count - topic.partitions))
    logs = await create_logs(store, replace(topic, growing_to=count), settings)
    await catalog.finish_growth(topic.topic_id)
    return logs[topic.partitions :]


async def settle(catalog: Catalog, store: LogStore, topic: Topic) -> list[Log]:
    """Bring catalog and logs in step after a growth that failed, and give the logs of the partitions that the topic
    has more all the same. May be repeated; raises when catalog or disk still fail."""
    stored = next((found for found in await catalog.topics() if found.topic_id == topic.topic_id), None)
    if stored is None or stored.state is not TopicState.READY:
        return []
    if stored.growing_to:
        await remove_logs(store, _keys(topic, stored.partitions, stored.growing_to))
        await catalog.abandon_growth(topic.topic_id)
    logs = [store.get(key) for key in _keys(topic, topic.partitions, stored.partitions)]
    assert all(logs), "what counts has its log"
    return [log for log in logs if log is not None]


def _keys(topic: Topic, first: int, end: int) -> list[PartitionKey]:
    return [PartitionKey(topic.topic_id, number) for number in range(first, end)]
