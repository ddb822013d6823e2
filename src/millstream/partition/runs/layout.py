"""Describes the entries of sorted runs: key, value and the log offset of each entry."""

from struct import Struct as Packing

from msgspec import Struct

OFFSET = Packing(">q")
BLOCK_ENTRIES = 128

Entry = tuple[bytes, bytes]
"""An entry in two parts: the bytes that identify it, and the rest. A run stores both parts in sequence."""


class RunLayout(Struct, frozen=True, kw_only=True):
    """Describes the files of one kind of index: sizes and order of its keys and values.

    Integers are big-endian, so that the order of the bytes is the order of the keys.
    """

    name: str
    """Runs are named `<name>-<number>.run`, their list `<name>.snapshot`."""
    kind: bytes
    """Four bytes that mark the list of runs."""
    key_bytes: int
    value_bytes: int
    offset_at: int
    """Position in the entry of the log offset that the entry belongs to: 8 bytes, not negative."""
    is_unique: bool
    """True if a key has one value, the newest. Otherwise a key has any number of values, each stored once."""
    is_hashed: bool
    """True if keys are digests of 16 bytes that are looked up individually. Each run then has a Bloom filter.
    Otherwise entries are read in key order, and the list of runs has the first and the last key of each run."""

    def __post_init__(self) -> None:
        assert len(self.kind) == 4
        assert 0 <= self.offset_at <= self.entry_bytes - OFFSET.size, "an offset is a part of the entry"
        assert not self.is_hashed or self.key_bytes == 16, "a filter needs keys of 16 bytes"

    @property
    def entry_bytes(self) -> int:
        return self.key_bytes + self.value_bytes

    @property
    def identity_bytes(self) -> int:
        """Length of the leading bytes that identify an entry."""
        return self.key_bytes if self.is_unique else self.entry_bytes

    def offset_of(self, entry: bytes) -> int:
        offset: int = OFFSET.unpack_from(entry, self.offset_at)[0]
        return offset

    def split(self, block: bytes) -> list[bytes]:
        """Split a block into its entries."""
        entry_bytes = self.entry_bytes
        return [block[at : at + entry_bytes] for at in range(0, len(block), entry_bytes)]

    def run_name(self, number: int) -> str:
        return f"{self.name}-{number:020d}.run"

    def is_run_name(self, name: str) -> bool:
        return name.startswith(f"{self.name}-") and name.endswith(".run")
