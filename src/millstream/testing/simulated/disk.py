"""Simulates a disk in memory that can lose whatever a real disk can lose.

Each file has two contents: what reads see, and what is on stable storage. Each directory has two sets of names. A flush
copies the first to the second. At a power loss, each write since the last flush is separately lost, kept or torn at
sector boundaries, and each name change is lost or kept. Real file systems lose less.

Without `random` and without faults it is a plain disk in memory.

Faults, which a test may set and reset at any time:
  before               called before each operation; may raise OSError or PowerLoss, or return the share of a write
                       that reaches the file before the disk is full
  is_full              nothing can be added: a write stores a part and raises ENOSPC
  capacity_bytes       the size of the volume: a write beyond it stores a part and raises ENOSPC
  write_error_chance   a write stores a part and raises EIO
  flush_error_chance   a flush raises EIO; unflushed data is then lost or kept at random, and reads may or may not see
                       it; later flushes succeed but prove nothing, as on Linux
  cold_chance          a read that must not wait finds nothing in memory

Damage, which a test causes by a call:
  power_loss           see above
  restore              the disk is replaced by an empty one, or by an earlier copy of its stable storage
  flip_bit             one flushed bit changes, in a given or a random file
"""

import errno
import posixpath
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.seams.disk import Buffer, Space
from millstream.testing.simulated.inodes import Directory, Inode, apply

SPACE_BYTES = 2**40
"""The size and the free space of a simulated volume. A full disk is a separate fault."""


class PowerLoss(BaseException):
    """The power is lost: raised by the current operation, and by all later ones until `SimulatedDisk.power_loss`."""


class DiskOperation(NamedTuple):
    """An operation that is about to happen.

    `kind` is the name of the operation. `number` counts the operations that change something.
    """

    number: int
    kind: str
    path: str


class SimulatedFile:
    """An open file. It is unusable after a power loss, even when the disk is back."""

    __slots__ = ("_boot", "_disk", "_inode", "_is_open", "path")

    def __init__(self, disk: "SimulatedDisk", path: str, inode: Inode) -> None:
        self.path = path
        self._disk = disk
        self._boot = disk.boot
        self._inode = inode
        self._is_open = True
        disk.open_count += 1

    def _use(self) -> Inode:
        assert self._is_open, f"{self.path} is closed"
        self._disk.check_power(self._boot)
        return self._inode

    def write(self, data: Buffer | Sequence[Buffer], position: int) -> None:
        inode = self._use()
        parts = [data] if isinstance(data, (bytes, bytearray, memoryview)) else data
        whole = b"".join(parts)
        share, error = self._disk.fate_of_write(self.path, position + len(whole) - inode.used_bytes)
        if error is None:
            inode.change(position, whole)
            return
        if share:
            inode.change(position, whole[: int(len(whole) * share)])
        raise error

    def read(self, size: int, *, position: int) -> bytes:
        self._disk.counts["read"] += 1
        return bytes(self._use().content[position : position + size])

    def read_cached(self, size: int, *, position: int) -> bytes | None:
        inode = self._use()
        self._disk.counts["read cached"] += 1
        if self._disk.chance(self._disk.cold_chance) or position + size > len(inode.content):
            return None
        return bytes(inode.content[position : position + size])

    def part(self, size: int, *, position: int) -> None:
        return None

    def flush(self) -> None:
        inode = self._use()
        self._disk.step("flush", self.path)
        if self._disk.chance(self._disk.flush_error_chance):
            self.fail_flush()
        inode.flush()

    def fail_flush(self) -> None:
        """Apply a failed flush to the file, and raise EIO."""
        inode, random = self._inode, self._disk.random or Random(0)
        inode.fail_flush(random)
        if random.random() < 0.3:
            inode.content[:] = inode.durable
        raise OSError(errno.EIO, "simulated input/output error", self.path)

    def size(self) -> int:
        return len(self._use().content)

    def allocate(self, size: int) -> None:
        inode = self._use()
        _, error = self._disk.fate_of_write(self.path, size - inode.used_bytes)
        if error is not None:
            raise error
        inode.allocated_bytes = size

    def truncate(self, size: int) -> None:
        inode = self._use()
        self._disk.step("truncate", self.path)
        if size != len(inode.content):
            inode.change(size, None)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._disk.open_count -= 1

    def __del__(self) -> None:
        self.close()


class _Lock:
    def __init__(self, disk: "SimulatedDisk", path: str) -> None:
        self._disk = disk
        self._path = path
        self._boot = disk.boot
        self._is_held = True

    def close(self) -> None:
        if self._is_held and self._disk.boot == self._boot:
            self._disk.locks.discard(self._path)
        self._is_held = False


@dataclass(frozen=True, slots=True)
class DiskSnapshot:
    """A copy of a simulated disk's stable storage."""

    root: Directory


class SimulatedDisk:
    """A `Disk` in memory."""

    def __init__(self, random: Random | None = None) -> None:
        self.random = random
        self.before: Callable[[DiskOperation], float | None] | None = None
        self.is_full = False
        self.capacity_bytes = SPACE_BYTES
        self.write_error_chance = 0.0
        self.flush_error_chance = 0.0
        self.cold_chance = 0.0 if random is None else 0.1
        self.operations = 0
        """The number of operations so far that change something."""
        self.counts: Counter[str] = Counter()
        """The number of calls per kind of operation, including reads."""
        self.open_count = 0
        self.boot = 0
        self.locks: set[str] = set()
        self.is_dead = False
        self._root = Directory()

    # Called by files.

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.random is not None and self.random.random() < probability

    def check_power(self, boot: int) -> None:
        if self.is_dead or boot != self.boot:
            raise PowerLoss

    def step(self, kind: str, path: str) -> float | None:
        """Count an operation, and call the test's `before`."""
        self.check_power(self.boot)
        self.operations += 1
        self.counts[kind] += 1
        if self.before is None:
            return None
        try:
            return self.before(DiskOperation(self.operations, kind, path))
        except PowerLoss:
            self.is_dead = True
            raise

    def fate_of_write(self, path: str, growth: int) -> tuple[float, OSError | None]:
        """Return the share of a write that takes place, and the error that it raises."""
        share = self.step("write", path)
        if share is not None:
            return share, OSError(errno.ENOSPC, "simulated: no space left", path)
        part = self.random.random() if self.random is not None else 0.5
        is_full = self.is_full or (self.capacity_bytes < SPACE_BYTES and growth > self._free_bytes())
        if is_full and growth > 0:
            return part, OSError(errno.ENOSPC, "simulated: no space left", path)
        if self.chance(self.write_error_chance):
            return part, OSError(errno.EIO, "simulated input/output error", path)
        return 1.0, None

    # Called by tests.

    def power_loss(self, random: Random | None = None) -> None:
        """Lose the power and restore it. Only flushed data is certain to remain; open files and locks are gone."""
        chance = random or self.random or Random(0)
        self.boot += 1
        self.is_dead = False
        self.locks.clear()
        seen: set[int] = set()
        pending = [self._root]
        while pending:
            directory = pending.pop()
            directory.lose(chance)
            for node in directory.names.values():
                if isinstance(node, Directory):
                    pending.append(node)
                elif id(node) not in seen:
                    seen.add(id(node))
                    node.lose(chance)
                    node.read_back()

    def snapshot(self) -> DiskSnapshot:
        """Copy the current stable storage, for `restore`."""
        return DiskSnapshot(self._root.durable_copy())

    def restore(self, snapshot: DiskSnapshot | None, *, reboots: bool = True) -> None:
        """Replace the content by an earlier copy, or by nothing. No process may use the disk meanwhile.

        With `reboots=False` the volume is replaced under a running machine, whose boot id stays.
        """
        assert not self.locks, f"the disk is in use: {sorted(self.locks)}"
        if reboots:
            self.boot += 1
        self.is_dead = False
        self._root = snapshot.root.durable_copy() if snapshot is not None else Directory()

    def flip_bit(self, path: str, bit: int) -> None:
        """Flip a flushed bit of a file, counted from its start, as a failing medium does."""
        self._file(path).flip_bit(bit)

    def flip_random_bit(self, random: Random, selects: Callable[[str], bool] = lambda _: True) -> str | None:
        """Flip a flushed bit of a random file among the selected paths. Return the path, or None if there is none."""
        found = list(filter(selects, self.flushed_files()))
        if not found:
            return None
        path = random.choice(found)
        self.flip_bit(path, random.randrange(8 * self._file(path).flushed_bytes))
        return path

    def flushed_files(self) -> list[str]:
        """The paths of all files that have flushed bytes."""
        return [path for path, _ in self._root.flushed_files()]

    def holds_durably(self, data: bytes) -> bool:
        """Return True if a file that survives a power loss contains these bytes on stable storage."""
        pending = [self._root]
        while pending:
            for node in pending.pop().durable.values():
                if isinstance(node, Directory):
                    pending.append(node)
                elif data in node.durable:
                    return True
        return False

    def contents(self, path: str) -> bytes:
        """The content of a file, without counting as an operation."""
        return bytes(self._file(path).content)

    def spoil(self, path: str, position: int, data: bytes) -> None:
        """Overwrite a part of a file without the disk's user knowing, on stable storage too, as bit rot does."""
        inode = self._file(path)
        apply(inode.content, position, data)
        apply(inode.durable, position, data)

    def cut(self, path: str, size: int) -> None:
        """Truncate a file without the disk's user knowing, on stable storage too."""
        inode = self._file(path)
        del inode.content[size:], inode.durable[size:]
        inode.unflushed.clear()

    # The interface of `Disk`.

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        self.check_power(self.boot)
        self.counts["open"] += 1
        directory, name = self._parent(path)
        node = directory.names.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.step("create", path)
            if self.is_full:
                raise OSError(errno.ENOSPC, "simulated: no space left", path)
            node = Inode()
            directory.change({name: node})
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return SimulatedFile(self, path, node)

    def exists(self, path: str) -> bool:
        self.check_power(self.boot)
        try:
            directory, name = self._parent(path)
        except OSError:
            return False
        return not name or name in directory.names

    def list(self, path: str) -> list[str]:
        self.check_power(self.boot)
        self.counts["list"] += 1
        return sorted(self._directory(path).names)

    def make_directory(self, path: str) -> None:
        if not path.strip("/") or self.exists(path):
            return
        parent = posixpath.dirname(path)
        self.make_directory(parent)
        self.step("make directory", path)
        directory, name = self._parent(path)
        directory.change({name: Directory()})
        self.flush_directory(parent)

    def remove(self, path: str) -> None:
        directory, name = self._parent(path)
        node = directory.names.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if isinstance(node, Directory) and node.names:
            raise OSError(errno.ENOTEMPTY, "directory not empty", path)
        self.step("remove", path)
        directory.change({name: None})

    def rename(self, old: str, new: str) -> None:
        source, old_name = self._parent(old)
        target, new_name = self._parent(new)
        assert source is target, "files move within their directory only"
        node = source.names.get(old_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        replaced = target.names.get(new_name)
        if isinstance(replaced, Directory) and replaced.names:
            raise OSError(errno.ENOTEMPTY, "directory not empty", new)
        self.step("rename", new)
        source.change({old_name: None, new_name: node})

    def flush_directory(self, path: str) -> None:
        directory = self._directory(path)
        self.step("flush directory", path)
        if self.chance(self.flush_error_chance):
            raise OSError(errno.EIO, "simulated input/output error", path)
        directory.flush()

    def space(self, path: str) -> Space:
        self._directory(path)
        if self.is_full or self.capacity_bytes < SPACE_BYTES:
            return Space(self.capacity_bytes, 0 if self.is_full else self._free_bytes())
        return Space(SPACE_BYTES, SPACE_BYTES)

    def _free_bytes(self) -> int:
        return self.capacity_bytes - sum(inode.used_bytes for inode in self._root.inodes())

    def boot_id(self) -> str:
        return f"boot {self.boot}"

    def lock(self, path: str) -> _Lock:
        self.check_power(self.boot)
        if path in self.locks:
            raise MillstreamError(
                ErrorCode.DATA_DIRECTORY_IN_USE, f"{posixpath.dirname(path)} is in use by a simulation"
            )
        self.locks.add(path)
        return _Lock(self, path)

    # Path lookup.

    def _directory(self, path: str) -> Directory:
        node: Inode | Directory = self._root
        for name in path.strip("/").split("/"):
            if not name:
                continue
            if not isinstance(node, Directory) or name not in node.names:
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            node = node.names[name]
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        head, name = posixpath.split(path)
        return self._directory(head), name

    def _file(self, path: str) -> Inode:
        directory, name = self._parent(path)
        node = directory.names[name]
        assert isinstance(node, Inode), f"{path} is not a file"
        return node
