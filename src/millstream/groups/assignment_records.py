"""Decodes the assignment that the leader of a classic group wrote for one member."""

from collections.abc import Mapping, Sequence

from millstream.model.errors import MillstreamError
from millstream.wire.messages import read_versioned


def assigned_partitions(assignment: bytes) -> Mapping[str, Sequence[int]] | None:
    """Returns the assigned partitions by topic; None if the bytes are not an assignment of the consumer protocol."""
    if not assignment:
        return {}
    try:
        fields = read_versioned("ConsumerProtocolAssignment", assignment)
    except MillstreamError:
        return None
    return {topic["topic"]: tuple(topic["partitions"]) for topic in fields["assigned_partitions"]}
