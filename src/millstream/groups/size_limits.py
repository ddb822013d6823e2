"""Limits the size of a group, so that its records always fit into the log.

A classic group is one record. So there is a limit on the total size of the members' own data, and a limit on that of
the leader's assignments. The limits leave 1 MiB for names and for the batch around the record. A group of the newer
protocol has a record for each member. It may become a classic group, so the first limit applies to it too.
"""

from collections.abc import Iterable

from millstream.groups.commands import OfferedProtocol

RECORD_BYTES_MAX = 16 * 1024 * 1024
"""Maximum size of a message in the internal topic."""

TOLD_BYTES_MAX = 15 * 1024 * 1024 // 2
"""Maximum size of the data that all members of a group send about themselves: names, protocols with their metadata,
topics. Includes member ids that were issued to clients that have not joined yet."""

ASSIGNED_BYTES_MAX = 15 * 1024 * 1024 // 2
"""Maximum size of all assignments that the leader of a classic group sends."""

_OVERHEAD_BYTES = 64
"""An upper bound for the bytes of a member in a record apart from its strings, and for the overhead of one string."""


def text_bytes(*texts: str | None) -> int:
    """Returns an upper bound for the encoded size of these strings, with their overhead."""
    return _OVERHEAD_BYTES + sum(len(text.encode(errors="replace")) + 4 for text in texts if text is not None)


def protocols_bytes(protocols: Iterable[OfferedProtocol]) -> int:
    return sum(text_bytes(name) + len(metadata) for name, metadata in protocols)
