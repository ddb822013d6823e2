"""Computes CRC-32C, with the processor's own instruction if it has one.

Only the compiled part of the crc32c package is loaded. Importing the package itself would add 19 ms to a broker's
start, because it looks up its own version among all installed packages and includes a command line.
"""

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any


def _compiled_part() -> Any:
    package = find_spec("crc32c")
    found = PathFinder.find_spec("_crc32c", package.submodule_search_locations) if package else None
    if found is None or found.loader is None:
        raise ImportError("the module crc32c is missing; install the package crc32c")
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from crc32c import crc32c as crc32c
else:
    crc32c = _compiled_part().crc32c
