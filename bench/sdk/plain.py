"""Makes a process run the compiled modules as plain Python."""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

FOLDERS = ("millstream.records", "millstream.sdk.producing")


class Plain:
    """Finds a module's source instead of its compiled file."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None or name.rpartition(".")[0] not in FOLDERS:
            return None
        source = Path(path[0], name.rpartition(".")[2]).with_suffix(".py")
        return importlib.util.spec_from_file_location(name, source)


def run_plain() -> None:
    """Makes this process import the sources from now on. Call it before their first import."""
    sys.meta_path.insert(0, Plain())
