"""Stands in for the `cython` module where Cython is not installed, so that the codec's source runs as plain Python.

Only what the codec uses is here. Types never get this far: annotations are not evaluated in the codec's modules.
"""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

compiled = False


def cfunc(thing: T) -> T:
    return thing


cclass = final = inline = cfunc


def _directive(value: object) -> Callable[[T], T]:
    return cfunc


boundscheck = wraparound = initializedcheck = _directive
