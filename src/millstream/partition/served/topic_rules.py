"""What a topic may be called, how many partitions it may have, and what is wrong with one that is refused."""

from millstream.catalog.catalog import Topic
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.limits import PARTITIONS_PER_TOPIC_MAX
from millstream.model.names import INTERNAL_PREFIX, check_new_topic_name, check_topic_name


def check_new_topic(name: str, partitions: int, replication_factor: int, internal: bool) -> None:
    """INVALID_TOPIC, INVALID_PARTITIONS or INVALID_REPLICATION_FACTOR for what no broker alone can serve."""
    (check_topic_name if internal else check_new_topic_name)(name)
    if not 1 <= partitions <= PARTITIONS_PER_TOPIC_MAX:
        raise MillstreamError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {name!r}: {partitions} partitions; 1 to {PARTITIONS_PER_TOPIC_MAX} are possible",
        )
    if replication_factor not in (-1, 1):
        raise MillstreamError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"topic {name!r}: replication factor {replication_factor} is not possible with one broker",
        )


def check_free(name: str, like: Topic | None) -> None:
    """TOPIC_ALREADY_EXISTS, or INVALID_TOPIC when `like` is a topic that could be mistaken for the new one."""
    if like is None:
        return
    if like.name == name:
        raise MillstreamError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
    raise MillstreamError(
        ErrorCode.INVALID_TOPIC,
        f"topic {name!r} collides with {like.name!r}: where dots are written as underscores, as in the names of "
        "metrics, nobody could tell them apart",
    )


def check_growth(topic: Topic, count: int) -> None:
    """INVALID_PARTITIONS unless `count` is more than there are; POLICY_VIOLATION for an internal topic."""
    if topic.name.startswith(INTERNAL_PREFIX):
        raise MillstreamError(
            ErrorCode.POLICY_VIOLATION,
            f"topic {topic.name!r} is internal: where its messages are is worked out from its number of partitions",
        )
    if count <= topic.partitions:
        raise MillstreamError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name!r} has {topic.partitions} partitions already; {count} would not be more",
        )
    if count > PARTITIONS_PER_TOPIC_MAX:
        raise MillstreamError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name!r}: {count} partitions; up to {PARTITIONS_PER_TOPIC_MAX} are possible",
        )


def check_alterable(topic: Topic) -> None:
    """POLICY_VIOLATION for an internal topic: a setting that removes its messages would remove what they stand for."""
    if topic.name.startswith(INTERNAL_PREFIX):
        raise MillstreamError(
            ErrorCode.POLICY_VIOLATION, f"topic {topic.name!r} is internal: its settings are the broker's own"
        )
