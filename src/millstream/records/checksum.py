"""CRC-32C, by the processor's own instruction where it has one.

Only the compiled part of the crc32c package is loaded. Importing the package itself would cost a broker 19 ms of its
start, because it looks up its own version among everything that is installed, and has a command line.
"""

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any


def _compiled_part() -> Any:
    package = find_spec("crc32c")
    found = PathFinder.find_spec("_crc32c", package.submodule_search_locations) if package else None
    if found is None or found.loader is None:
        raise ImportError("the checksum of batches is missing: install crc32c")
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from crc32c import crc32c as crc32c
else:
    crc32c = _compiled_part().crc32c
