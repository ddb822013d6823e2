"""Identifies the data directories of a broker: each stores its own id and the ids of the others.

File `directory-id`, a sealed file (see `sealed_file`), payload: 16 bytes own id, then 16 bytes for every directory of
the broker, itself included. If a disk is not mounted, its path is an empty directory without an id, while the other
directories list the missing id. Then the broker refuses to start, because it would begin anew beside its own data.

New directories first get their own id. Only then is the complete list written to all directories. So after a crash, no
directory lists an id that does not exist.
"""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.seams.disk import Disk
from millstream.seams.entropy import Entropy, random_uuid
from millstream.storage import sealed_file

FILE_NAME = "directory-id"
KIND = b"MSTRMID1"


class DirectoryIdentity(NamedTuple):
    own: UUID
    members: frozenset[UUID]


def identify(disk: Disk, directories: Sequence[str], entropy: Entropy) -> list[UUID]:
    """Return the id of each directory; directories without an id get one (blocking).

    Raises DATA_DIRECTORY_MISSING if a directory of this broker is missing, or one belongs to another broker.
    """
    found = [read_identity(disk, directory) for directory in directories]
    present = {identity.own: directory for identity, directory in zip(found, directories, strict=True) if identity}
    if len(present) < sum(identity is not None for identity in found):
        raise _missing("two data directories have the same id, because one is a copy of the other; remove the copy")
    for identity, directory in zip(found, directories, strict=True):
        for member in sorted(identity.members if identity else ()):
            if member not in present:
                raise _missing(f"{directory} belongs together with data directory {member}, which is missing; mount it")
    ids = []
    for identity, directory in zip(found, directories, strict=True):
        if identity is None:
            own = random_uuid(entropy)
            identity = DirectoryIdentity(own, frozenset([own]))
            _write(disk, directory, identity)
        ids.append(identity.own)
    members = frozenset(ids)
    for own, directory, identity in zip(ids, directories, found, strict=True):
        if (identity.members if identity else frozenset([own])) != members:
            _write(disk, directory, DirectoryIdentity(own, members))
    return ids


def _missing(detail: str) -> MillstreamError:
    return MillstreamError(ErrorCode.DATA_DIRECTORY_MISSING, detail)


def read_identity(disk: Disk, directory: str) -> DirectoryIdentity | None:
    """Return the identity of a directory, or None if it has none. Raise DATA_DIRECTORY_MISSING if it is damaged."""
    if not disk.exists(f"{directory}/{FILE_NAME}"):
        return None
    payload = sealed_file.read(disk, f"{directory}/{FILE_NAME}", KIND)
    if payload is None and not sealed_file.is_of_kind(disk, f"{directory}/{FILE_NAME}", KIND):
        raise _missing(
            f"{directory}/{FILE_NAME} has an unknown file magic: another program or version made this "
            "directory; choose another one"
        )
    if payload is None or len(payload) < 32 or len(payload) % 16:
        raise _missing(f"{directory}/{FILE_NAME} is damaged, so its broker is unknown; restore the file")
    ids = [UUID(bytes=payload[at : at + 16]) for at in range(0, len(payload), 16)]
    return DirectoryIdentity(ids[0], frozenset(ids[1:]))


def _write(disk: Disk, directory: str, identity: DirectoryIdentity) -> None:
    ids = [identity.own, *sorted(identity.members)]
    sealed_file.write(disk, f"{directory}/{FILE_NAME}", KIND, b"".join(one.bytes for one in ids))
