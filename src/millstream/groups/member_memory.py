"""Bounds the memory that the members of all groups on this broker use for their metadata and assignments.

A machine measures a group after each step that may have changed it. The budget sums up the machines of the broker when
a member asks for more, so a machine that is discarded is no longer counted. A replay is measured but never refused.

Invariant: the total of a machine is the sum of the sizes that it measured last, one for each group.
"""

from collections.abc import Callable

MEMORY_BYTES = 128 * 1024 * 1024
"""The default limit of a broker."""

_NEW_MEMBERS = 7 / 8
"""The share of the budget that new members may fill. The rest is for members that joined already, so that a client that
fills the budget cannot end the groups that work."""

OWNED_PARTITION_BYTES = 256
"""An upper bound for the memory of one assigned partition in a group of the consumer protocol."""


class MemberBudget:
    """The limit of all machines of a broker. `used_bytes` returns their total."""

    def __init__(self, bytes_max: int, used_bytes: Callable[[], int], refused: Callable[[], None]) -> None:
        """`refused` is called whenever a member gets no memory."""
        self._bytes_max = bytes_max
        self._used_bytes = used_bytes
        self._refused = refused

    def has_room(self, more_bytes: int, *, is_member: bool) -> bool:
        """True if a group may grow by this many bytes. `is_member` is True if a member of the group asks for them."""
        limit = self._bytes_max if is_member else int(self._bytes_max * _NEW_MEMBERS)
        if more_bytes <= 0 or self._used_bytes() + more_bytes <= limit:
            return True
        self._refused()
        return False


class GroupSizes:
    """The sizes of the groups of one machine."""

    def __init__(self) -> None:
        self.total_bytes = 0
        self._sizes: dict[str, int] = {}

    def measured(self, group_id: str, size_bytes: int) -> None:
        """Set the current size of a group: 0 if it was removed."""
        self.total_bytes += size_bytes - self._sizes.get(group_id, 0)
        if size_bytes:
            self._sizes[group_id] = size_bytes
        else:
            self._sizes.pop(group_id, None)
        assert self.total_bytes >= 0, "the total is the sum of sizes"
