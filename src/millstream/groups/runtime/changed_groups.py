"""Tracks the groups and offsets that have changed since the catalog's tables were last written, by the keys of records.

Every key of the internal topic begins with its version and the group; the key of an offset continues with its topic and
partition. So the keys that are read back after a crash are enough to find the rows that may be outdated.
"""

from itertools import islice

from msgspec import Struct

from millstream.coordination.effects import LogRecord
from millstream.groups.iterators.records import ITERATOR_KEY
from millstream.groups.records import OFFSET_KEYS, key_version
from millstream.model.ids import Offset

_LENGTH_AT, _GROUP_AT = 2, 4


class Changed(Struct, frozen=True):
    """A part of the changes. When these are written, the tables contain everything before `offset`."""

    groups: list[bytes]
    """Group names, encoded as in the keys."""
    offsets: list[bytes]
    """Keys of committed offsets."""
    offset: Offset


class Changes:
    """The changes of one partition that are not in the tables yet.

    Invariants: `projected_offset <= reached`, and every change in the log between the two is listed here. A key is
    decoded only in `take`. So a key that changes often is noted often but decoded once.
    """

    def __init__(self, projected_offset: Offset) -> None:
        self.projected_offset = projected_offset
        """The tables contain everything before this offset."""
        self.reached: int = projected_offset
        """Everything before this offset has been noted."""
        self._groups: dict[bytes, None] = {}
        self._offsets: dict[bytes, None] = {}
        self._with_offsets: set[bytes] = set()
        """Groups that are known to have offsets. A group may consist of offsets only, so its first offset marks it as
        changed."""

    def __bool__(self) -> bool:
        return bool(self._groups or self._offsets)

    def reload(self) -> None:
        """Prepares for another replay from the start of the log, whose end may have been truncated."""
        self.reached = self.projected_offset

    def projected(self, changed: Changed) -> None:
        """Records that these changes have been written to the tables."""
        assert changed.offset >= self.projected_offset, "the projected offset does not decrease"
        self.projected_offset = changed.offset
        self.reached = max(self.reached, changed.offset)

    def note(self, record: LogRecord, offset: int) -> None:
        """Notes the record at `offset`, unless the tables already contain it."""
        self.reached = max(self.reached, offset + 1)
        if offset < self.projected_offset:
            return
        key = record.key
        version = key_version(key)
        if version == ITERATOR_KEY:
            return  # The tables do not contain iterators.
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
        """Removes and returns up to `most` changes. The caller returns them with `put_back` if they could not be
        written."""
        groups = list(islice(self._groups, most))
        offsets = list(islice(self._offsets, most - len(groups)))
        for group in groups:
            del self._groups[group]
        for key in offsets:
            del self._offsets[key]
        return Changed(groups, offsets, self.projected_offset if self else Offset(self.reached))

    def put_back(self, changed: Changed) -> None:
        self._groups.update(dict.fromkeys(changed.groups))
        self._offsets.update(dict.fromkeys(changed.offsets))
