"""Tests the first use of `millstream` by two threads at once, in a process that has not imported it."""

import subprocess
import sys

import pytest

PROGRAM = """
import importlib.abc, importlib.machinery, os, sys, threading

first, second, package, moment = sys.argv[1:]
reached, through, had = threading.Event(), threading.Event(), []

def hold(name, now):
    if (name, now) != (package, moment) or threading.current_thread() is not one:
        return
    reached.set()
    while not through.is_set() and not waits_for_us():
        os.sched_yield()

def waits_for_us():
    frame = sys._current_frames().get(other.ident)
    return frame and frame.f_code.co_name == "acquire" and frame.f_locals["self"].owner == one.ident

class Loader(importlib.machinery.SourceFileLoader):
    def create_module(self, spec):
        hold(spec.name, "found")
    def exec_module(self, module):
        hold(module.__name__, "begun")
        super().exec_module(module)

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec and name == package:
            spec.loader = Loader(name, spec.origin)
        return spec

def use(name):
    if threading.current_thread() is other:
        reached.wait()
    try:
        import millstream
        had.append(getattr(millstream, name).__name__)
    finally:
        (through if threading.current_thread() is other else reached).set()

sys.meta_path.insert(0, Finder())
one, other = (threading.Thread(target=use, args=(name,)) for name in (first, second))
other.start(), one.start(), other.join(), one.join()
print(*sorted(had))
"""


@pytest.mark.parametrize("moment", ["found", "begun"])
@pytest.mark.parametrize(
    ("first", "second"),
    [("connect", "Message"), ("Message", "connect"), ("connect_async", "Consumer"), ("Consumer", "Producer")],
)
def test_two_threads_can_import_different_names_at_the_same_time(first: str, second: str, moment: str) -> None:
    """Hold one thread in the import of a package until the other has finished or waits for it."""
    command = [sys.executable, "-c", PROGRAM, first, second, "millstream.records", moment]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == sorted([first, second]), done.stderr
