"""Checks that SDK modules have no import cycles.

Modules are imported on first use, by any thread. Threads that enter a cycle at different modules would see unfinished
modules.
"""

from graphlib import TopologicalSorter

import grimp

LAYERS = ("model", "wire", "records", "sdk")


def test_sdk_modules_have_no_import_cycles() -> None:
    graph = grimp.build_graph("millstream", exclude_type_checking_imports=True, cache_dir=None)
    modules = {"millstream"}
    for layer in LAYERS:
        modules |= {f"millstream.{layer}", *graph.find_descendants(f"millstream.{layer}")}
    first = {name: graph.find_modules_directly_imported_by(name) & modules for name in modules}
    for name in modules - {"millstream"}:
        first[name].add(name.rpartition(".")[0])  # A package is imported before what is in it.
    TopologicalSorter(first).prepare()
