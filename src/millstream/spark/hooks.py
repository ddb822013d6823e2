"""Wraps methods of Spark's own classes, for behaviour that Spark offers no extension point for."""

from collections.abc import Callable
from functools import wraps
from typing import Any

_added: set[tuple[type, str, Callable[..., Any]]] = set()


def add(owner: type, name: str, around: Callable[..., Any]) -> None:
    """Replaces a method by `around(method, self, ...)`, which calls the original method.

    Repeated calls with the same arguments have no effect in a process.
    """
    if (owner, name, around) in _added:
        return
    _added.add((owner, name, around))
    method = getattr(owner, name)

    @wraps(method)
    def called(self: Any, *arguments: Any, **named: Any) -> Any:
        return around(method, self, *arguments, **named)

    setattr(owner, name, called)
