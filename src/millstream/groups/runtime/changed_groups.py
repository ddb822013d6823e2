"""Which groups and offsets have changed since the catalog's tables were last written, told by the keys of the log.

Every key of the internal topic begins with its version and the group; that of an offset goes on with its topic and
partition. So what is read back after a crash says by itself what the tables may lack.
"""

from itertools import islice
from typing import NamedTuple

from millstream.groups.effects import GroupLogRecord
from millstream.groups.iterators.records import ITERATOR_KEY
from millstream.groups.records import OFFSET_KEYS, key_version

_LENGTH_AT, _GROUP_AT = 2, 4


class Changed(NamedTuple):
    """A part of what has changed; the tables then have everything before `offset`."""

    groups: list[bytes]
    """Names, as they are in the keys."""
    offsets: list[bytes]
    """Keys of offsets."""
    offset: int


class Changes:
    """Invariant: whatever lies in the log at or after `projected_offset` is named here. Keys are kept as they are, and
    read when they are taken: a key that changes often is noted often and read once."""

    def __init__(self) -> None:
        self.projected_offset = 0
        """Everything before it is in the tables."""
        self.reached = 0
        """Everything before it was noted."""
        self._groups: dict[bytes, None] = {}
        self._offsets: dict[bytes, None] = {}
        self._with_offsets: set[bytes] = set()
        """Groups that are known to have offsets. A group may have nothing else: it comes with its first offset."""

    def __bool__(self) -> bool:
        return bool(self._groups or self._offsets)

    def begin(self, projected_offset: int) -> None:
        self.projected_offset = self.reached = projected_offset

    def note(self, record: GroupLogRecord, offset: int) -> None:
        """This record is at `offset`; what the tables have already is passed over."""
        self.reached = max(self.reached, offset + 1)
        if offset < self.projected_offset:
            return
        key = record.key
        version = key_version(key)
        if version == ITERATOR_KEY:
            return  # The tables say nothing of iterators.
        group = key[_GROUP_AT : _GROUP_AT + int.from_bytes(key[_LENGTH_AT:_GROUP_AT])]
        if version not in OFFSET_KEYS:
            self._groups[group] = None
            return
        self._offsets[key] = None
        if record.value is None:
            self._with_offsets.discard(group)
            self._groups[group] = None
        elif group not in self._with_offsets:
            self._with_offsets.add(group)
            self._groups[group] = None

    def take(self, most: int) -> Changed:
        """Up to so many changes, no longer named here: give them back with `put_back` if they were not written."""
        groups = list(islice(self._groups, most))
        offsets = list(islice(self._offsets, most - len(groups)))
        for group in groups:
            del self._groups[group]
        for key in offsets:
            del self._offsets[key]
        return Changed(groups, offsets, self.projected_offset if self else self.reached)

    def put_back(self, changed: Changed) -> None:
        self._groups.update(dict.fromkeys(changed.groups))
        self._offsets.update(dict.fromkeys(changed.offsets))
