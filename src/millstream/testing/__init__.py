"""The public test kit: real and embedded brokers, fault injection, and simulated time, network, threads and disk.

Start with `EmbeddedBroker`. Under pytest the fixture `millstream_broker` is available without an import.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.testing.embedded import EmbeddedBroker as EmbeddedBroker
    from millstream.testing.real_broker import RealBroker as RealBroker

_PLACES = {"EmbeddedBroker": "millstream.testing.embedded", "RealBroker": "millstream.testing.real_broker"}

__all__ = ["EmbeddedBroker", "RealBroker"]


def __getattr__(name: str) -> object:
    """Import what is asked for when it is asked for: pytest loads this package also for tests that use none of it."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)
