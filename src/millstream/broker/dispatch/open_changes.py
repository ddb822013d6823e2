"""Defines the changes that later requests of the same connection wait for.

Kafka handles one request of a connection at a time. This broker handles the next one while earlier ones wait for a
flush. A request must still find the earlier changes of its connection: the result of a request that changes something
names the change, and a row of the dispatch table names the changes that its API waits for. A change is open until its
request has a response, whether the change succeeded or not.

Nothing waits for a request that only reads, or that joins a group: these may take long. The coordinator keeps commands
to a group in order, so a commit is no change in this sense: a later read of the group is answered after it anyway.
"""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from millstream.broker.dispatch.request import BrokerRequest

APPENDS = 1
"""Batches are appended to partitions. Further appends do not wait, because appends keep their order anyway."""

DELETED_RECORDS = 2
"""The log start offsets of partitions advance."""

DELETED_GROUPS = 4
TOPICS = 8
"""Topics or settings are created, changed or deleted. Every request waits for such a change,
and such a change waits for all others."""

CHANGED_PARTITIONS = APPENDS | DELETED_RECORDS | TOPICS
"""The kinds of changes for which a read of partitions waits."""

EVERY_CHANGE = APPENDS | DELETED_RECORDS | DELETED_GROUPS | TOPICS

Target = tuple[str, int] | str
"""A partition, by the name of its topic and its number, or a group."""

Targets = Collection[Target] | None
"""The partitions or groups that a request changes or reads; None if they are not known, or all of them."""

TargetsOf = Callable[["BrokerRequest"], Targets]


class OpenChange(Protocol):
    """A change that a request has begun. Its targets are determined only if a later request might wait for it."""

    @property
    def kind(self) -> int:
        """The kind: one of the constants of this module."""
        ...

    def targets(self) -> Targets: ...


class NamedChange(NamedTuple):
    """A change whose targets are known."""

    kind: int
    names: Targets = None

    def targets(self) -> Targets:
        return self.names


CHANGED_TOPICS = NamedChange(TOPICS)


def overlap(one: Targets, other: Targets) -> bool:
    """True if both may name the same partition or group."""
    return one is None or other is None or not set(one).isdisjoint(other)
