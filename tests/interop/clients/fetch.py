"""Downloads and builds the programs in other languages that the tests drive.

python -m interop.clients.fetch alone       programs that need nothing from this Python environment
python -m interop.clients.fetch generated   programs whose build needs tools of this environment
"""

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

Build = Callable[[], object]


def _lanes(what: str) -> Sequence[Sequence[Build]]:
    """Return the builds that can run at the same time; Maven's local repository allows one Maven at a time."""
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
