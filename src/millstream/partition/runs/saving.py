"""Saves an index: writes the entries in memory as a run, then the list of runs."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from msgspec import Struct

from millstream.partition.runs.run import SortedRun
from millstream.partition.runs.run_writer import RunWriter
from millstream.storage import snapshot
from millstream.storage.cleaning.file_removal import remove_all
from millstream.storage.log.open_files import OpenFiles


class IndexedLog(Protocol):
    """The log that an index is derived from: its directory, its open files and its end."""

    @property
    def path(self) -> str: ...

    @property
    def files(self) -> OpenFiles: ...

    @property
    def end_offset(self) -> int: ...


class RunSave(Struct, frozen=True):
    """One save: writes `entries` as `run`, then the list that `pack` returns, and removes the files of `gone`."""

    log: IndexedLog
    name: str
    entries: Mapping[bytes, bytes]
    run: SortedRun | None
    covered: int
    pack: Callable[[], bytes]
    gone: Sequence[SortedRun]

    def write(self) -> None:
        """Write the files. Blocking. After an OSError the list of runs is the previous or the new one."""
        disk, path = self.log.files.disk, self.log.path
        if self.run is not None:
            writer = RunWriter(disk, self.run.path, self.run.layout, len(self.entries))
            try:
                writer.add(sorted(identity + rest for identity, rest in self.entries.items()))
                content = writer.finish()
            except OSError:
                writer.discard()
                raise
            self.run.written(content)
            # The run's file name is flushed before the list names it: a crash may lose any unflushed file name.
            disk.flush_directory(path)
        snapshot.save(disk, path, self.name, self.covered, self.pack())
        for run in self.gone:
            run.forget()
        with suppress(OSError):  # The next start removes runs that the list does not name.
            remove_all(disk, [run.path for run in self.gone])
