"""Fetches and builds the programs in other languages and environments that the tests drive, before the tests.

python -m interop.clients.fetch alone       those that need nothing installed into this environment
python -m interop.clients.fetch generated   those whose build needs its tools
"""

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

Build = Callable[[], object]


def _lanes(what: str) -> Sequence[Sequence[Build]]:
    """What can be built at the same time; Maven's repository of downloads allows one Maven at a time."""
    if what == "generated":
        from interop.clients import grpc_go

        return [[grpc_go.build]]
    from bench.spark import connector

    from interop.clients import franz_go, java, kafkajs

    return [[java.build, connector.build], [kafkajs.build, franz_go.build]]


def _build_in_order(builds: Sequence[Build]) -> None:
    for build in builds:
        build()


if __name__ == "__main__":
    with ThreadPoolExecutor() as pool:
        list(pool.map(_build_in_order, _lanes(sys.argv[1])))
