"""What a simulated disk is made of: files and directories that know what of them is on stable storage."""

from collections.abc import Iterator
from itertools import pairwise
from random import Random

SECTOR_BYTES = 512


class Inode:
    """A file, whatever its names."""

    __slots__ = ("content", "durable", "unflushed")

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = bytearray()
        self.unflushed: list[tuple[int, bytes | None]] = []
        """Writes (position, bytes) and truncations (size, None) since the last flush."""

    def change(self, position: int, data: bytes | None) -> None:
        apply(self.content, position, data)
        self.unflushed.append((position, data))

    def flush(self) -> None:
        for position, data in self.unflushed:
            apply(self.durable, position, data)
        self.unflushed.clear()

    def lose(self, random: Random) -> None:
        """Of each unflushed change, keep what chance leaves."""
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
    """Names, as they are and as they would be after power was lost."""

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
    """Some sectors of a write: a part from the front, or any."""
    bounds = [0, *range(SECTOR_BYTES - position % SECTOR_BYTES, len(data), SECTOR_BYTES), len(data)]
    sectors = [(first, end) for first, end in pairwise(bounds) if end > first]
    from_front = random.random() < 0.5
    kept = random.randrange(len(sectors) + 1)
    for number, (first, end) in enumerate(sectors):
        if number < kept if from_front else random.random() < 0.5:
            yield position + first, data[first:end]
