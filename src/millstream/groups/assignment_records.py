"""What a classic consumer is told to read, as its leader wrote it for it."""

from collections.abc import Mapping, Sequence

from millstream.model.errors import MillstreamError
from millstream.wire.messages import read_versioned


def assigned_partitions(assignment: bytes) -> Mapping[str, Sequence[int]] | None:
    """Partitions by topic; None when that is not what the bytes hold."""
    if not assignment:
        return {}
    try:
        fields = read_versioned("ConsumerProtocolAssignment", assignment)
    except MillstreamError:
        return None
    return {topic["topic"]: tuple(topic["partitions"]) for topic in fields["assigned_partitions"]}
