"""Removes files and directories that are no longer needed. Missing ones are ignored. Blocking: for workers."""

from collections.abc import Sequence

from millstream.seams.disk import Disk


def remove_all(disk: Disk, paths: Sequence[str]) -> None:
    """Remove those of the files that exist. Raise OSError."""
    for path in paths:
        try:
            disk.remove(path)
        except FileNotFoundError:
            continue


def remove_directory(disk: Disk, path: str) -> None:
    """Remove a log's directory with its files. After an error, the rest stays until the next start."""
    try:
        for name in disk.list(path):
            disk.remove(f"{path}/{name}")
        disk.remove(path)
    except OSError:
        return
