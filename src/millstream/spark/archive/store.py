"""Stores an archive's files: in a local directory, or wherever PyArrow has a file system (s3, gs, hdfs, abfs).

`create` is atomic: after a kill or a power failure the file exists completely or not at all. A local disk needs a
temporary file, fsync and a link for that; an object store guarantees it by itself.
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
    """A file in a directory. The stamp changes with the file's content."""

    name: str
    stamp: tuple[int, int]


class ArchiveStore:
    """Accesses files by paths relative to the archive's root, separated by `/`. An OSError names the path."""

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
        """Returns the files of a directory, without those in subdirectories; empty if the directory does not exist."""
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
        """Returns the paths of all files below a directory, relative to it."""
        base = self.full(path)
        found = self.filesystem.get_file_info(fs.FileSelector(base, allow_not_found=True, recursive=True))
        return (each.path[len(base) + 1 :] for each in found if each.type is fs.FileType.File)

    def make_directory(self, path: str) -> None:
        with naming(self.full(path)):
            self.filesystem.create_dir(self.full(path), recursive=True)

    def open_output(self, path: str) -> pa.NativeFile:
        """Opens a new file. It is durable after it is closed and `keep` is called."""
        with naming(self.full(path)):
            return self.filesystem.open_output_stream(self.full(path))

    def keep(self, *paths: str) -> None:
        """Flushes written files and changed directories, so that they survive a power failure."""
        if self.is_local:
            for path in paths:
                _synchronise(self.full(path))

    def create(self, path: str, data: bytes) -> None:
        """Creates a file atomically. Raises FileExistsError if it exists; only a local disk guarantees this check."""
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
        """Moves a file to a path whose directory exists."""
        self.filesystem.move(self.full(path), self.full(to))

    def delete(self, path: str) -> None:
        """Deletes a file if it exists."""
        with suppress(FileNotFoundError):
            self.filesystem.delete_file(self.full(path))

    def delete_directory(self, path: str) -> None:
        """Deletes a directory and its contents, if it exists."""
        with suppress(FileNotFoundError):
            self.filesystem.delete_dir(self.full(path))


@contextmanager
def naming(full: str) -> Iterator[None]:
    """Adds this path to an OSError that names none."""
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
        if os.path.exists(full):  # Some file systems, such as network ones, have no links.
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
    """Returns the absolute path, so that it is valid in any process."""
    return path if "://" in path else os.path.abspath(path)


@lru_cache(maxsize=32)
def store_of(path: str) -> ArchiveStore:
    """Returns the store for a local path or a URI. Raises ValueError for an unknown kind of URI."""
    try:
        return ArchiveStore(*fs.FileSystem.from_uri(located(path)))
    except pa.ArrowInvalid as error:
        raise ValueError(str(error)) from None
