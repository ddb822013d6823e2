"""Stores the local clusters, so that the next `millstream serve` starts them again.

On disk: `<data>/clusters/<name>/cluster.json` beside the brokers' data directories, replaced as a whole by a rename.
The file is written, with `is_made` false, before anything else of the cluster. It is rewritten with `is_made` true once
each broker was ready. A crash in between leaves an unfinished cluster that no client knows; only such clusters are
removed at the next start. Directories without this file do not belong to Millstream and are not touched.
"""

import errno
import logging
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import msgspec
from msgspec import Struct

from millstream.model.errors import ErrorCode, FieldError, MillstreamError
from millstream.process.control_protocol import NewCluster
from millstream.supervisor.clusters.name_checks import FILE_NAME, NEW_FILE_NAME, check_inside, directories
from millstream.supervisor.owner_only import OWNER_ONLY

log = logging.getLogger(__name__)

_FORMAT = 1


class StoredCluster(Struct, frozen=True, kw_only=True):
    """One cluster on disk. `ports` are the ports of its brokers when they last ran."""

    asked: NewCluster
    ports: tuple[int, ...]
    is_made: bool = False
    is_stopped: bool = False
    format: int = _FORMAT


class ClusterFiles:
    """The directory of all clusters. Every call blocks on the disk, and raises OSError if the disk fails."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def check(self, asked: NewCluster) -> Sequence[Path]:
        """Returns the data directories of a new cluster's brokers, none of which exists yet.

        What an earlier failed creation of this name left is removed. Raises CLUSTER_EXISTS, or INVALID_CLUSTER if links
        or files are in the way.
        """
        file = self._home(asked.name) / FILE_NAME
        if file.exists() and not self._removed_unfinished(file):
            raise MillstreamError(ErrorCode.CLUSTER_EXISTS, f"the cluster {asked.name!r} already exists")
        places = self.places(asked)
        for place in places:
            if place.exists():
                detail = (
                    f"{place.relative_to(self._root.parent)} already exists, and belongs to no cluster; move it away"
                )
                raise FieldError(ErrorCode.INVALID_CLUSTER, detail, "log_directories")
        return places

    def _removed_unfinished(self, file: Path) -> bool:
        """Removes the cluster of this file if its creation failed. Returns false if it is finished or unreadable."""
        try:
            cluster = _decoded(file.read_bytes(), file.parent.name)
        except msgspec.DecodeError:
            return False
        if not cluster.is_made:
            self.forget(cluster.asked)
        return not cluster.is_made

    def begin(self, asked: NewCluster) -> None:
        """Reserves the name and creates the directories above the brokers' data. `forget` undoes this."""
        for directory in (self._root, self._home(asked.name)):
            directory.mkdir(mode=OWNER_ONLY, parents=True, exist_ok=True)
        self.remember(StoredCluster(asked=asked, ports=(0,) * asked.brokers))
        for place in self.places(asked):
            place.parent.mkdir(mode=OWNER_ONLY, parents=True, exist_ok=True)

    def places(self, asked: NewCluster) -> Sequence[Path]:
        """Returns the brokers' data directories. Raises INVALID_CLUSTER if a symbolic link or a file is in the way."""
        inside = [PurePosixPath(self._root.name, asked.name, each) for each in directories(asked)]
        return [check_inside(self._root.parent, each) for each in inside]

    def remember(self, cluster: StoredCluster) -> None:
        """Writes the cluster's file durably."""
        home = self._home(cluster.asked.name)
        fresh = home / NEW_FILE_NAME
        with open(fresh, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(cluster)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, home / FILE_NAME)
        for directory in (home, self._root):
            descriptor = os.open(directory, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def forget(self, asked: NewCluster) -> None:
        """Deletes the cluster with all its data. Its file is deleted last, so that a deletion can be repeated."""
        import shutil  # Imported on demand, because it loads every archive format.

        places = self._possible_places(asked)
        for place in places:
            if place.exists():
                shutil.rmtree(place)
        home = self._home(asked.name)
        for name in (NEW_FILE_NAME, FILE_NAME):
            (home / name).unlink(missing_ok=True)
        within = {home} | {parent for place in places for parent in place.parents if home in (parent, *parent.parents)}
        for directory in sorted(within, key=lambda path: len(path.parts), reverse=True):
            try:
                directory.rmdir()
            except OSError:
                pass  # The directory contains other files.

    def _possible_places(self, asked: NewCluster) -> Sequence[Path]:
        """Returns the data directories that may exist. One with a name that is too long for the disk never did."""
        found = []
        for each in directories(asked):
            try:
                found.append(check_inside(self._root.parent, PurePosixPath(self._root.name, asked.name, each)))
            except OSError as problem:
                if problem.errno != errno.ENAMETOOLONG:
                    raise
        return found

    def read(self) -> Sequence[StoredCluster]:
        """Returns all finished clusters, and removes unfinished ones.

        A cluster that cannot be read or removed is logged and left.
        """
        found = []
        for file in sorted(self._root.glob(f"*/{FILE_NAME}")):
            try:
                cluster = _decoded(file.read_bytes(), file.parent.name)
                if cluster.is_made:
                    found.append(cluster)
                else:
                    self.forget(cluster.asked)
                    log.warning("unfinished cluster removed", extra={"cluster": cluster.asked.name})
            except (msgspec.DecodeError, OSError, MillstreamError) as problem:
                log.error("cluster skipped", extra={"path": str(file), "error": str(problem)})
        return found

    def _home(self, name: str) -> Path:
        return self._root / name


def _decoded(data: bytes, name: str) -> StoredCluster:
    cluster = msgspec.json.decode(data, type=StoredCluster)
    if cluster.asked.name != name:
        raise msgspec.ValidationError(
            f"describes the cluster {cluster.asked.name!r}, but is in the directory of {name!r}"
        )
    if len(cluster.ports) != cluster.asked.brokers:
        raise msgspec.ValidationError(f"{len(cluster.ports)} ports for {cluster.asked.brokers} brokers")
    return cluster
