"""Changes the catalog, and reads the rows again after an error, because the commit may have succeeded.

If the rows have the change, it was made, and no error is raised.
"""

from collections.abc import Mapping

from millstream.catalog.catalog import Catalog, Placement, Topic, TopicState
from millstream.model.errors import MillstreamError
from millstream.model.ids import TopicId
from millstream.model.names import PartitionKey


async def delete_topic(catalog: Catalog, topic_id: TopicId) -> None:
    """Mark a topic as deleting, unless an earlier attempt has done so. Raises as the catalog does."""
    try:
        await catalog.delete_topic(topic_id)
    except MillstreamError:
        stored = await stored_topic(catalog, topic_id)
        if stored is not None and stored.state is not TopicState.DELETING:
            raise


async def change_settings(catalog: Catalog, topic_id: TopicId, settings: Mapping[str, str]) -> None:
    """Replace the settings of a topic. Raises as the catalog does."""
    try:
        await catalog.change_settings(topic_id, settings)
    except MillstreamError:
        stored = await stored_topic(catalog, topic_id)
        if stored is None or stored.settings != settings:
            raise


async def stored_topic(catalog: Catalog, topic_id: TopicId) -> Topic | None:
    """Return a topic as the catalog has it, in any state."""
    return next((topic for topic in await catalog.topics() if topic.topic_id == topic_id), None)


async def stored_placement(catalog: Catalog, key: PartitionKey) -> Placement | None:
    """Return the placement of a partition as the catalog has it."""
    return next((row for row in await catalog.placements() if row.key == key), None)
