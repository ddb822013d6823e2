"""Restricts data directories to the owner of the broker's process, because they hold messages and secrets.

New directories are created with mode 0700. Directories of earlier versions had 0755, so they are changed at the start,
if they contain Millstream's data and belong to the user of this process.
"""

import logging
import os
from collections.abc import Iterable
from pathlib import Path

from millstream.storage.recovery.directory_identity import FILE_NAME

log = logging.getLogger(__name__)

OWNER_ONLY = 0o700
_OTHERS = 0o077


def restrict(directories: Iterable[str]) -> None:
    """Remove the rights of other users from these data directories, and log it. Blocks on the disk.

    Directories of other users, and directories without Millstream's data, stay as they are.
    """
    for directory in map(Path, directories):
        try:
            found = directory.stat()
            if not found.st_mode & _OTHERS or found.st_uid != os.geteuid() or not (directory / FILE_NAME).is_file():
                continue
            directory.chmod(OWNER_ONLY)
        except FileNotFoundError:
            continue
        except OSError as error:
            log.warning(
                "data directory not restricted to its owner", extra={"path": str(directory), "error": str(error)}
            )
        else:
            log.info("data directory restricted to its owner", extra={"path": str(directory)})
