"""What is remembered of clusters, so that the next `millstream serve` starts them again.

On disk: `<data>/clusters/<name>/cluster.json` beside the brokers' own data directories, replaced whole by a rename. It
is there, as `making`, before anything else of the cluster is, and says `made` once every broker has been up. So a crash
in between leaves a cluster that nobody was told of: it is removed at the next start, and only then is.
Directories without that file are not ours and are left alone.
"""

import logging
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import msgspec
from msgspec import Struct

from millstream.model.errors import ErrorCode, FieldError, MillstreamError
from millstream.process.control_protocol import NewCluster
from millstream.supervisor.clusters.name_checks import FILE_NAME, NEW_FILE_NAME, check_inside, directories

log = logging.getLogger(__name__)

_FORMAT = 1


class StoredCluster(Struct, frozen=True, kw_only=True):
    """One cluster; `ports` are those that its brokers had when they were last up."""

    asked: NewCluster
    ports: tuple[int, ...]
    is_made: bool = False
    is_stopped: bool = False
    format: int = _FORMAT


class ClusterFiles:
    """The directory of all clusters. Every call does disk work, and raises OSError when the disk refuses."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def check(self, asked: NewCluster) -> Sequence[Path]:
        """Where each broker's data would go, which is free.

        Raises CLUSTER_EXISTS, or INVALID_CLUSTER where links or files are in the way.
        """
        if (self._home(asked.name) / FILE_NAME).exists():
            raise MillstreamError(ErrorCode.CLUSTER_EXISTS, f"there is a cluster {asked.name!r} already")
        places = self.places(asked)
        for place in places:
            if place.exists():
                detail = f"{place} is there already, and no cluster's; move it away"
                raise FieldError(ErrorCode.INVALID_CLUSTER, detail, "log_directories")
        return places

    def begin(self, asked: NewCluster) -> None:
        """Take the name, and make room for the brokers' data; whatever comes of that, `forget` clears it away."""
        self._home(asked.name).mkdir(parents=True, exist_ok=True)
        self.remember(StoredCluster(asked=asked, ports=(0,) * asked.brokers))
        for place in self.places(asked):
            place.parent.mkdir(parents=True, exist_ok=True)

    def places(self, asked: NewCluster) -> Sequence[Path]:
        """The brokers' data directories; INVALID_CLUSTER when one of them would lie elsewhere."""
        inside = [PurePosixPath(self._root.name, asked.name, each) for each in directories(asked)]
        return [check_inside(self._root.parent, each) for each in inside]

    def remember(self, cluster: StoredCluster) -> None:
        """Write it down durably."""
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
        """Remove the cluster with all its data; the file goes last, so that a crash leaves one that can be removed."""
        import shutil  # Brings every archive format with it; brokers that delete nothing do without.

        places = self.places(asked)
        for place in places:
            if place.exists():
                shutil.rmtree(place)
        home = self._home(asked.name)
        for name in (NEW_FILE_NAME, FILE_NAME):
            (home / name).unlink(missing_ok=True)
        within = {parent for place in places for parent in place.parents if home in (parent, *parent.parents)}
        for directory in sorted(within, key=lambda path: len(path.parts), reverse=True):
            try:
                directory.rmdir()
            except OSError:
                pass  # Somebody keeps something else there.

    def read(self) -> Sequence[StoredCluster]:
        """All clusters that were made; removes what is left of those that were not. What cannot be read or removed is
        told in the log, and left."""
        found = []
        for file in sorted(self._root.glob(f"*/{FILE_NAME}")):
            try:
                cluster = _decoded(file.read_bytes(), file.parent.name)
                if cluster.is_made:
                    found.append(cluster)
                else:
                    log.warning("a cluster that was never finished is removed", extra={"cluster": cluster.asked.name})
                    self.forget(cluster.asked)
            except (msgspec.DecodeError, OSError, MillstreamError) as problem:
                log.error("a cluster is left as it is", extra={"file": str(file), "why": str(problem)})
        return found

    def _home(self, name: str) -> Path:
        return self._root / name


def _decoded(data: bytes, name: str) -> StoredCluster:
    cluster = msgspec.json.decode(data, type=StoredCluster)
    if cluster.asked.name != name:
        raise msgspec.ValidationError(f"it is of a cluster {cluster.asked.name!r}, in the directory of {name!r}")
    if len(cluster.ports) != cluster.asked.brokers:
        raise msgspec.ValidationError(f"{len(cluster.ports)} ports for {cluster.asked.brokers} brokers")
    return cluster
