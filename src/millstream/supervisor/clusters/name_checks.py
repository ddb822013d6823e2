"""What a new cluster may be called, and where its brokers may put their logs: never outside of its own directory."""

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from millstream.model.errors import ErrorCode, FieldError, MillstreamError
from millstream.process.control_protocol import BROKERS_MAX, NewCluster

PROCESSES_MAX = 64
"""Of all clusters together: each is a process of some fifty megabytes."""
PARTITIONS_MAX = 10_000
DIRECTORY_LENGTH_MAX = 512
DEFAULT_NAME = "default"
"""What gateways call the cluster of the broker that supervises."""

FILE_NAME = "cluster.json"
"""What is remembered of a cluster, in its own directory."""
NEW_FILE_NAME = FILE_NAME + ".new"

_NAME = re.compile(r"[a-z0-9-]{1,64}")


def check(new: NewCluster, processes: int) -> None:
    """Raise INVALID_CLUSTER, naming the field, unless such a cluster may be made beside `processes` brokers."""
    if not _NAME.fullmatch(new.name):
        raise _wrong("name", f"bad cluster name {new.name[:80]!r}: 1 to 64 of a-z, 0-9 and '-' are allowed")
    if new.name == DEFAULT_NAME:
        raise _wrong("name", f"the cluster {DEFAULT_NAME!r} is the one that is there")
    _check_number("brokers", new.brokers, 1, BROKERS_MAX)
    if processes + new.brokers > PROCESSES_MAX:
        detail = f"{new.brokers} brokers are too many: {processes} of {PROCESSES_MAX} are there; delete a cluster first"
        raise _wrong("brokers", detail)
    if new.partitions is not None:
        _check_number("partitions", new.partitions, 1, PARTITIONS_MAX)
    for field, value in (("retention_ms", new.retention_ms), ("retention_bytes", new.retention_bytes)):
        if value is not None:
            _check_number(field, value, -1, 2**63 - 1)
    if len(new.log_directories) not in (0, 1, new.brokers):
        count = len(new.log_directories)
        raise _wrong("log_directories", f"{count} log directories for {new.brokers} brokers: name one, or one for each")
    for directory in new.log_directories:
        _check_directory(directory)
    _check_apart(directories(new))


def directories(new: NewCluster) -> Sequence[PurePosixPath]:
    """Where each broker's data is, inside the cluster's directory."""
    said = new.log_directories or (".",)
    return [PurePosixPath(said[at % len(said)], f"broker-{at + 1}") for at in range(new.brokers)]


def check_inside(root: Path, relative: PurePosixPath) -> Path:
    """The place below `root`; raises INVALID_CLUSTER when anything on the way there is not a directory of its own."""
    place = root
    for part in relative.parts:
        place /= part
        if place.is_symlink():
            raise _wrong("log_directories", f"{place} is a symbolic link, which could lead out of {root}")
        if place.exists() and not place.is_dir():
            raise _wrong("log_directories", f"{place} is not a directory")
    return place


def _check_directory(directory: str) -> None:
    place = PurePosixPath(directory)
    if not directory or len(directory) > DIRECTORY_LENGTH_MAX or "\0" in directory or "," in directory:
        raise _wrong("log_directories", f"bad log directory {directory[:80]!r}: 1 to 512 characters, no comma")
    if place.is_absolute() or ".." in place.parts:
        raise _wrong("log_directories", f"{directory!r} leads out of the cluster's directory; name one inside of it")
    if place.parts[:1] in ((FILE_NAME,), (NEW_FILE_NAME,)):
        raise _wrong("log_directories", f"{place.parts[0]!r} is the cluster's own file; name another directory")


def _check_apart(places: Sequence[PurePosixPath]) -> None:
    for number, place in enumerate(places, 1):
        for other, outer in enumerate(places, 1):
            if outer in place.parents:
                detail = f"the data of broker {number} would lie inside that of broker {other}; name other directories"
                raise _wrong("log_directories", detail)


def _check_number(field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise _wrong(field, f"{field} = {value}: expected {least} to {most}")


def _wrong(field: str, detail: str) -> MillstreamError:
    return FieldError(ErrorCode.INVALID_CLUSTER, detail, field)
