"""Modules are imported where they are first needed, by whichever thread is there first. Threads that enter a cycle from
different sides would be given modules that are not finished."""

from graphlib import TopologicalSorter

import grimp

LAYERS = ("model", "wire", "records", "sdk")


def test_no_module_of_the_sdk_is_imported_by_what_it_imports() -> None:
    graph = grimp.build_graph("millstream", exclude_type_checking_imports=True, cache_dir=None)
    modules = {"millstream"}
    for layer in LAYERS:
        modules |= {f"millstream.{layer}", *graph.find_descendants(f"millstream.{layer}")}
    first = {name: graph.find_modules_directly_imported_by(name) & modules for name in modules}
    for name in modules - {"millstream"}:
        first[name].add(name.rpartition(".")[0])  # A package is imported before what is in it.
    TopologicalSorter(first).prepare()
