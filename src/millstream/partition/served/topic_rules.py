"""Checks the names, partition counts and changes of topics."""

from millstream.catalog.catalog import Topic
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.limits import PARTITIONS_PER_TOPIC_MAX
from millstream.model.names import INTERNAL_PREFIX, check_new_topic_name, check_topic_name


def check_new_topic(name: str, partitions: int, *, replication_factor: int, internal: bool) -> None:
    """Raise INVALID_TOPIC, INVALID_PARTITIONS or INVALID_REPLICATION_FACTOR for a topic that cannot be created."""
    (check_topic_name if internal else check_new_topic_name)(name)
    if not 1 <= partitions <= PARTITIONS_PER_TOPIC_MAX:
        raise MillstreamError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {name!r}: {partitions} partitions requested; use 1 to {PARTITIONS_PER_TOPIC_MAX}",
        )
    if replication_factor not in (-1, 1):
        raise MillstreamError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"topic {name!r}: replication factor {replication_factor} is not supported; use 1",
        )


def check_free(name: str, like: Topic | None) -> None:
    """Raise TOPIC_ALREADY_EXISTS if `like` has the name, or INVALID_TOPIC if its name collides with it."""
    if like is None:
        return
    if like.name == name:
        raise MillstreamError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
    raise MillstreamError(
        ErrorCode.INVALID_TOPIC,
        f"topic {name!r} collides with {like.name!r}: metric names write dots as underscores, so both would have the "
        "same metrics; choose another name",
    )


def check_growth(topic: Topic, count: int) -> None:
    """Raise INVALID_PARTITIONS unless `count` is a larger, valid count, and POLICY_VIOLATION for an internal topic."""
    if topic.name.startswith(INTERNAL_PREFIX):
        raise MillstreamError(
            ErrorCode.POLICY_VIOLATION,
            f"topic {topic.name!r} is internal: its partition count determines where its messages are stored",
        )
    if count <= topic.partitions:
        raise MillstreamError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name!r} already has {topic.partitions} partitions; the new count {count} must be larger",
        )
    if count > PARTITIONS_PER_TOPIC_MAX:
        raise MillstreamError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name!r}: {count} partitions requested; the maximum is {PARTITIONS_PER_TOPIC_MAX}",
        )


def check_alterable(topic: Topic) -> None:
    """Raise POLICY_VIOLATION for an internal topic: settings that remove its messages would remove broker state."""
    if topic.name.startswith(INTERNAL_PREFIX):
        raise MillstreamError(
            ErrorCode.POLICY_VIOLATION, f"topic {topic.name!r} is internal: its settings cannot be changed"
        )
