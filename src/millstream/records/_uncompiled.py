"""Replaces the `cython` module if Cython is not installed, so that the codec's source runs as plain Python.

It contains only what the codec uses. Types in annotations are missing, because the codec's modules do not evaluate
annotations.
"""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

compiled = False


def cfunc(thing: T) -> T:
    return thing


cclass = final = inline = no_gc = with_gil = cfunc


class _NoGil:
    """Works as a decorator and as a context manager."""

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
