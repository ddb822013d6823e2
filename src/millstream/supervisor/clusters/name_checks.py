"""Checks a new cluster's name and its log directories, which must be inside the cluster's own directory."""

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from millstream.model.errors import ErrorCode, FieldError, MillstreamError
from millstream.process.control_protocol import BROKERS_MAX, NewCluster

PROCESSES_MAX = 64
"""Maximum number of brokers in all clusters together. Each is a process of about fifty megabytes."""
PARTITIONS_MAX = 10_000
DIRECTORY_LENGTH_MAX = 512
PART_BYTES_MAX = 255
"""Longest name of a file or directory, in bytes."""
DEFAULT_NAME = "default"
"""Name that gateways give to the cluster of the supervising broker."""

FILE_NAME = "cluster.json"
"""File that describes a cluster, in the cluster's own directory."""
NEW_FILE_NAME = FILE_NAME + ".new"

_NAME = re.compile(r"[a-z0-9-]{1,64}")


def check(new: NewCluster, processes: int) -> None:
    """Checks that the cluster may be created beside `processes` other brokers.

    Raises INVALID_CLUSTER, or INVALID_CONFIG for the retention of its topics. The error has the field.
    """
    if not _NAME.fullmatch(new.name):
        raise _wrong("name", f"bad cluster name {new.name[:80]!r}: 1 to 64 of a-z, 0-9 and '-' are allowed")
    if new.name == DEFAULT_NAME:
        raise _wrong("name", f"the name {DEFAULT_NAME!r} is reserved for the cluster of this broker")
    _check_number("brokers", new.brokers, least=1, most=BROKERS_MAX)
    if processes + new.brokers > PROCESSES_MAX:
        detail = f"{new.brokers} brokers are too many: {processes} of {PROCESSES_MAX} exist; delete a cluster first"
        raise _wrong("brokers", detail)
    if new.partitions is not None:
        _check_number("partitions", new.partitions, least=1, most=PARTITIONS_MAX)
    for field, value in (("retention_ms", new.retention_ms), ("retention_bytes", new.retention_bytes)):
        if value is not None:
            _check_number(field, value, least=-1, most=2**63 - 1, code=ErrorCode.INVALID_CONFIG)
    if len(new.log_directories) not in (0, 1, new.brokers):
        count = len(new.log_directories)
        raise _wrong("log_directories", f"{count} log directories for {new.brokers} brokers: give one, or one for each")
    for directory in new.log_directories:
        _check_directory(directory)
    _check_apart(directories(new))


def directories(new: NewCluster) -> Sequence[PurePosixPath]:
    """Returns the data directory of each broker, relative to the cluster's directory."""
    chosen = new.log_directories or (".",)
    return [PurePosixPath(chosen[at % len(chosen)], f"broker-{at + 1}") for at in range(new.brokers)]


def check_inside(root: Path, relative: PurePosixPath) -> Path:
    """Returns the path below `root`. Raises INVALID_CLUSTER if a part of it is a symbolic link or not a directory."""
    place = root
    for part in relative.parts:
        place /= part
        if place.is_symlink():
            detail = f"{place.relative_to(root)} is a symbolic link, which could lead out of the data directory"
            raise _wrong("log_directories", detail)
        if place.exists() and not place.is_dir():
            raise _wrong("log_directories", f"{place.relative_to(root)} is not a directory")
    return place


def _check_directory(directory: str) -> None:
    place = PurePosixPath(directory)
    for part in place.parts:
        if len(part.encode(errors="surrogateescape")) > PART_BYTES_MAX:
            detail = f"the name {part[:40]!r}... in a log directory is longer than {PART_BYTES_MAX} bytes"
            raise _wrong("log_directories", detail)
    if not directory or len(directory) > DIRECTORY_LENGTH_MAX or "\0" in directory or "," in directory:
        raise _wrong("log_directories", f"bad log directory {directory[:80]!r}: 1 to 512 characters, no comma")
    if place.is_absolute() or ".." in place.parts:
        raise _wrong(
            "log_directories", f"bad log directory {directory!r}: expected a path inside the cluster's directory"
        )
    if place.parts[:1] in ((FILE_NAME,), (NEW_FILE_NAME,)):
        raise _wrong("log_directories", f"{place.parts[0]!r} is the cluster's own file; give another directory")


def _check_apart(places: Sequence[PurePosixPath]) -> None:
    for number, place in enumerate(places, 1):
        for other, outer in enumerate(places, 1):
            if outer in place.parents:
                detail = f"the data of broker {number} would be inside that of broker {other}; give other directories"
                raise _wrong("log_directories", detail)


def _check_number(
    field: str, value: int, *, least: int, most: int, code: ErrorCode = ErrorCode.INVALID_CLUSTER
) -> None:
    if not least <= value <= most:
        raise FieldError(code, f"{field} = {value}: expected {least} to {most}", field)


def _wrong(field: str, detail: str) -> MillstreamError:
    return FieldError(ErrorCode.INVALID_CLUSTER, detail, field)
