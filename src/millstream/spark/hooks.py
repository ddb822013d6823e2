"""What a session adds to methods of Spark's own classes, which have no place to hang it in."""

from collections.abc import Callable
from functools import wraps
from typing import Any

_added: set[tuple[type, str, Callable[..., Any]]] = set()


def add(owner: type, name: str, around: Callable[..., Any]) -> None:
    """From now on `around(method, self, ...)` is called for the method, which it calls in turn; once in a process,
    however often this is asked for."""
    if (owner, name, around) in _added:
        return
    _added.add((owner, name, around))
    method = getattr(owner, name)

    @wraps(method)
    def called(self: Any, *arguments: Any, **named: Any) -> Any:
        return around(method, self, *arguments, **named)

    setattr(owner, name, called)
