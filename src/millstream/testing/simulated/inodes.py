"""Implements the files and directories of a simulated disk, which track what is on stable storage."""

from collections.abc import Iterator
from itertools import pairwise
from random import Random

SECTOR_BYTES = 512


class Inode:
    """The content of a file, under whatever names."""

    __slots__ = ("_doubtful_from", "allocated_bytes", "content", "durable", "unflushed")

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = bytearray()
        self.unflushed: list[tuple[int, bytes | None]] = []
        """Writes (position, bytes) and truncations (size, None) since the last flush."""
        self.allocated_bytes = 0
        """The space that counts as used even where the file is shorter."""
        self._doubtful_from: int | None = None
        """The first position that a failed flush may have left different in memory and on stable storage."""

    def change(self, position: int, data: bytes | None) -> None:
        apply(self.content, position, data)
        self.unflushed.append((position, data))

    def flush(self) -> None:
        for position, data in self.unflushed:
            apply(self.durable, position, data)
        self.unflushed.clear()

    @property
    def used_bytes(self) -> int:
        return max(self.allocated_bytes, len(self.content))

    @property
    def flushed_bytes(self) -> int:
        """The length of the file's prefix that is on stable storage and unchanged since."""
        pending = min((position for position, _ in self.unflushed), default=len(self.durable))
        bounds = (pending, len(self.durable), len(self.content))
        return min(bounds if self._doubtful_from is None else (*bounds, self._doubtful_from))

    def fail_flush(self, random: Random) -> None:
        """Lose the pending changes. From the first one on, the file's bytes count as unflushed from now on."""
        pending = [position for position, _ in self.unflushed]
        if self._doubtful_from is not None:
            pending.append(self._doubtful_from)
        self._doubtful_from = min(pending, default=None)
        self.lose(random)

    def flip_bit(self, bit: int) -> None:
        """Flip one flushed bit, counted from the start of the file, on stable storage and in memory."""
        position = bit // 8
        assert 0 <= position < self.flushed_bytes, f"byte {position} is not flushed"
        self.content[position] ^= 1 << bit % 8
        self.durable[position] ^= 1 << bit % 8

    def durable_copy(self) -> "Inode":
        copy = Inode()
        copy.content[:] = copy.durable[:] = self.durable
        copy.allocated_bytes = self.allocated_bytes
        return copy

    def read_back(self) -> None:
        """Forget what was in memory: reads see stable storage."""
        self.content = bytearray(self.durable)
        self._doubtful_from = None

    def lose(self, random: Random) -> None:
        """Keep, drop or tear each unflushed change at random."""
        for position, data in self.unflushed:
            fate = random.random()
            if fate < 0.4:
                continue
            if fate < 0.7 or data is None:
                apply(self.durable, position, data)
            else:
                for at, sector in _torn(position, data, random):
                    apply(self.durable, at, sector)
        self.unflushed.clear()


class Directory:
    """The names in a directory: the current ones, and the ones on stable storage."""

    __slots__ = ("durable", "names", "unflushed")

    def __init__(self) -> None:
        self.names: dict[str, Inode | Directory] = {}
        self.durable: dict[str, Inode | Directory] = {}
        self.unflushed: list[dict[str, Inode | Directory | None]] = []

    def change(self, change: "dict[str, Inode | Directory | None]") -> None:
        _rename(self.names, change)
        self.unflushed.append(change)

    def flush(self) -> None:
        for change in self.unflushed:
            _rename(self.durable, change)
        self.unflushed.clear()

    def lose(self, random: Random) -> None:
        for change in self.unflushed:
            if random.random() < 0.5:
                _rename(self.durable, change)
        self.unflushed.clear()
        self.names = dict(self.durable)

    def durable_copy(self) -> "Directory":
        """Copy the content that a power loss would leave if no unflushed change survived."""
        copy = Directory()
        copy.durable = {name: node.durable_copy() for name, node in self.durable.items()}
        copy.names = dict(copy.durable)
        return copy

    def inodes(self) -> "Iterator[Inode]":
        """Yield each file below."""
        for node in self.names.values():
            if isinstance(node, Directory):
                yield from node.inodes()
            else:
                yield node

    def flushed_files(self, path: str = "") -> "Iterator[tuple[str, Inode]]":
        """Yield each file below with flushed bytes, with its path, in the order of the names."""
        for name, node in sorted(self.names.items()):
            if isinstance(node, Directory):
                yield from node.flushed_files(f"{path}/{name}")
            elif node.flushed_bytes:
                yield f"{path}/{name}", node


def apply(content: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        if position <= len(content):
            del content[position:]
        else:
            content.extend(bytes(position - len(content)))
        return
    if position > len(content):
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _rename(names: "dict[str, Inode | Directory]", change: "dict[str, Inode | Directory | None]") -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _torn(position: int, data: bytes, random: Random) -> Iterator[tuple[int, bytes]]:
    """Keep some sectors of a write: a prefix of them, or a random subset."""
    bounds = [0, *range(SECTOR_BYTES - position % SECTOR_BYTES, len(data), SECTOR_BYTES), len(data)]
    sectors = [(first, end) for first, end in pairwise(bounds) if end > first]
    from_front = random.random() < 0.5
    kept = random.randrange(len(sectors) + 1)
    for number, (first, end) in enumerate(sectors):
        if number < kept if from_front else random.random() < 0.5:
            yield position + first, data[first:end]
