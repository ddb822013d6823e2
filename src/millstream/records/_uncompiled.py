"""Stands in for the `cython` module where Cython is not installed, so that the codec's source runs as plain Python.

Only what the codec uses is here. Types in annotations never get this far: the codec's modules do not
evaluate them.
"""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

compiled = False


def cfunc(thing: T) -> T:
    return thing


cclass = final = inline = no_gc = with_gil = cfunc


class _NoGil:
    """Decorates functions, and is entered."""

    def __call__(self, thing: T) -> T:
        return thing

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


nogil = _NoGil()


def boundscheck(on: bool) -> Callable[[T], T]:
    return cfunc


def freelist(size: int) -> Callable[[T], T]:
    return cfunc


def exceptval(value: int | None = None, *, check: bool) -> Callable[[T], T]:
    return cfunc


def declare(kind: object, value: T | None = None, *, visibility: str = "") -> T | None:
    return value


def cast(kind: object, value: T) -> T:
    return value


longlong = ulonglong = Py_ssize_t = uchar = uint = bint = int
