"""How much a group may hold: so much that its records fit into the log, whatever its members tell.

A classic group is one record with everything in it, so what its members tell of themselves and what its leader gives
them are bounded, each for all members together. The bounds leave a mebibyte for names and for the batch around them.
A group of the new protocol has a record for each member; as it may become a classic one, the first bound is its too.
"""

from collections.abc import Iterable

from millstream.groups.commands import OfferedProtocol

RECORD_BYTES_MAX = 16 * 1024 * 1024
"""The largest message of the internal topic."""

TOLD_BYTES_MAX = 15 * 1024 * 1024 // 2
"""What members tell of themselves: names, protocols with their metadata, topics. Ids that were given out to members
to come are counted too."""

ASSIGNED_BYTES_MAX = 15 * 1024 * 1024 // 2
"""What the leader of a classic group gives to the members."""

_OVERHEAD_BYTES = 64
"""More than a member takes in a record beside its texts, and more than a text does."""


def text_bytes(*texts: str | None) -> int:
    """What these take, with whatever belongs to each."""
    return _OVERHEAD_BYTES + sum(len(text.encode(errors="replace")) + 4 for text in texts if text is not None)


def protocols_bytes(protocols: Iterable[OfferedProtocol]) -> int:
    return sum(text_bytes(name) + len(metadata) for name, metadata in protocols)
