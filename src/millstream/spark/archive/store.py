"""Where an archive lies: a directory of this machine, or whatever PyArrow has a file system for (s3, gs, hdfs, abfs).

A file that is made in one step is there whole or not at all, whenever the process is killed or the power fails. On a
local disk that is a temporary file, synchronised and linked; an object store does it by itself.
"""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

_UNFINISHED = ".unfinished"


class Entry(NamedTuple):
    """A file of a directory; what is changed has another stamp."""

    name: str
    stamp: tuple[int, int]


class ArchiveStore:
    """Paths are relative to the archive's root, with `/`. OSError, which names the path, for what the file system
    refuses."""

    def __init__(self, filesystem: Any, root: str) -> None:
        self.filesystem = filesystem
        self.root = root.rstrip("/")
        self.is_local = isinstance(filesystem, fs.LocalFileSystem)

    def full(self, path: str) -> str:
        return f"{self.root}/{path}"

    def open_input(self, path: str) -> pa.NativeFile:
        return self.filesystem.open_input_file(self.full(path))

    def read(self, path: str) -> bytes:
        with self.open_input(path) as file:
            data: bytes = file.read()
        return data

    def names(self, path: str) -> list[Entry]:
        """The files of a directory, without those below; none where there is no such directory."""
        found = self.filesystem.get_file_info(fs.FileSelector(self.full(path), allow_not_found=True))
        return [
            Entry(each.base_name, (each.size, each.mtime_ns or 0))
            for each in found
            if each.type is fs.FileType.File and not each.base_name.endswith(_UNFINISHED)
        ]

    def directories(self, path: str) -> list[str]:
        found = self.filesystem.get_file_info(fs.FileSelector(self.full(path), allow_not_found=True))
        return sorted(each.base_name for each in found if each.type is fs.FileType.Directory)

    def below(self, path: str) -> Iterator[str]:
        """All files below a directory, by their paths from there."""
        base = self.full(path)
        found = self.filesystem.get_file_info(fs.FileSelector(base, allow_not_found=True, recursive=True))
        return (each.path[len(base) + 1 :] for each in found if each.type is fs.FileType.File)

    def make_directory(self, path: str) -> None:
        with naming(self.full(path)):
            self.filesystem.create_dir(self.full(path), recursive=True)

    def open_output(self, path: str) -> pa.NativeFile:
        """A file that is there once `keep` was called for it, after it was closed."""
        with naming(self.full(path)):
            return self.filesystem.open_output_stream(self.full(path))

    def keep(self, *paths: str) -> None:
        """Files that were written, or directories that were changed, are as they are after a power failure too."""
        if self.is_local:
            for path in paths:
                _synchronise(self.full(path))

    def create(self, path: str, data: bytes) -> None:
        """A new file in one step. FileExistsError when it is there already, on a local disk surely."""
        if not self.is_local:
            if self.filesystem.get_file_info(self.full(path)).type is not fs.FileType.NotFound:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.full(path))
            with self.open_output(path) as file:
                file.write(data)
            return
        full = self.full(path)
        unfinished = f"{full}.{os.getpid()}-{threading.get_ident()}{_UNFINISHED}"
        try:
            with naming(full), open(unfinished, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _name_once(unfinished, full)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(unfinished)
        _synchronise(os.path.dirname(full))

    def move(self, path: str, to: str) -> None:
        """To a place whose directory is there."""
        self.filesystem.move(self.full(path), self.full(to))

    def delete(self, path: str) -> None:
        """A file, which may have gone already."""
        with suppress(FileNotFoundError):
            self.filesystem.delete_file(self.full(path))

    def delete_directory(self, path: str) -> None:
        """With all that is in it; it may have gone already."""
        with suppress(FileNotFoundError):
            self.filesystem.delete_dir(self.full(path))


@contextmanager
def naming(full: str) -> Iterator[None]:
    """What the file system refuses within is told of this path, where it does not say of which."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), full) from error


def _name_once(unfinished: str, full: str) -> None:
    try:
        os.link(unfinished, full)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP):
            raise
        if os.path.exists(full):  # There are file systems without links, some of them over a network.
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), full) from None
        os.rename(unfinished, full)


def _synchronise(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def located(path: str) -> str:
    """The path, whatever directory a process works in."""
    return path if "://" in path else os.path.abspath(path)


@lru_cache(maxsize=32)
def store_of(path: str) -> ArchiveStore:
    """A path of this machine or a URI. ValueError for a URI of a kind that nobody here knows."""
    try:
        return ArchiveStore(*fs.FileSystem.from_uri(located(path)))
    except pa.ArrowInvalid as error:
        raise ValueError(str(error)) from None
