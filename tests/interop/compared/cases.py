"""Defines a compared request: one row is sent to both brokers."""

from collections.abc import Callable
from typing import Any, NamedTuple

from interop.compared.world import World

Ask = Callable[[World], dict[str, Any]]


class Case(NamedTuple):
    """A request; its fields may depend on the broker, which assigns its own ids."""

    name: str
    api: str
    version: int
    fields: Ask


def case(name: str, api: str, version: int, /, **fields: Any) -> Case:
    return Case(name, api, version, lambda _: fields)
