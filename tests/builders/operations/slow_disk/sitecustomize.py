"""Makes the disk of a broker slow: each flush takes longer while a switch file exists.

Python imports `sitecustomize` before other modules if this directory is on its path, so the broker's code is unchanged.
"""

import os
import time

from millstream.seams.local_disk import LocalFile

_SWITCH = os.environ["SLOW_DISK_SWITCH"]
_DELAY_S = float(os.environ["SLOW_DISK_DELAY_S"])
_flush = LocalFile.flush


def _slow_flush(self: LocalFile) -> None:
    if os.path.exists(_SWITCH):
        time.sleep(_DELAY_S)
    _flush(self)


LocalFile.flush = _slow_flush  # type: ignore[method-assign]  # planting a fault is the purpose
