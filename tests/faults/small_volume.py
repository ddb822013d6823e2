"""Provides a volume of a few megabytes that a real broker can fill.

A process in its own mount namespace holds a file system in memory. Brokers enter the namespace, so restarts find their
data. That needs no root privileges where the kernel allows user namespaces.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millstream.testing.real_broker import RealBroker

_HOLD = "mount -t tmpfs -o size={size} none {path} && echo mounted && exec sleep infinity"


@contextmanager
def small_volume(path: Path, size: str) -> Iterator[int | None]:
    """Mount the volume, and yield the process that holds it; None where that is not permitted."""
    path.mkdir()
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _HOLD.format(size=size, path=path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as holder:
        try:
            assert holder.stdout is not None
            yield holder.pid if holder.stdout.readline() == b"mounted\n" else None
        finally:
            holder.kill()


class BrokerOnVolume(RealBroker):
    """A broker that sees the volume of `holder`."""

    def __init__(self, data_dir: Path, holder: int, *extra_args: str) -> None:
        super().__init__(data_dir, extra_args=extra_args)
        self._enter = ["nsenter", "--target", str(holder), "--user", "--mount", "--preserve-credentials"]

    def command(self) -> list[str]:
        return [*self._enter, *super().command()]
