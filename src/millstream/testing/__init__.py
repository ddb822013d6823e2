"""The public test kit: real and embedded brokers, fault injection, and simulated time, network, threads and disk.

Start with `EmbeddedBroker`. Under pytest the fixture `millstream_broker` is available without an import.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.testing.embedded import EmbeddedBroker as EmbeddedBroker
    from millstream.testing.real_broker import RealBroker as RealBroker

_MODULES = {"EmbeddedBroker": "millstream.testing.embedded", "RealBroker": "millstream.testing.real_broker"}

__all__ = ["EmbeddedBroker", "RealBroker"]


def __getattr__(name: str) -> object:
    """Import a class on first access, because pytest loads this package also for tests that do not use it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)
