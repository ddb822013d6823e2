"""Removing what is not needed any more, some of which may be gone already. Blocking: for workers."""

from collections.abc import Sequence

from millstream.seams.disk import Disk


def remove_all(disk: Disk, paths: Sequence[str]) -> None:
    """Remove the files that are there; raises OSError."""
    for path in paths:
        try:
            disk.remove(path)
        except FileNotFoundError:
            continue


def remove_directory(disk: Disk, path: str) -> None:
    """Remove a log's directory and all that is in it; what resists is left for the next start."""
    try:
        for name in disk.list(path):
            disk.remove(f"{path}/{name}")
        disk.remove(path)
    except OSError:
        return
