"""Keeps the clients of this process. Spark reuses its Python workers, so their connections are reused too."""

import os
from functools import lru_cache

from millstream.sdk.sync.client import Client, connect

CLIENT_ID = "millstream-spark"


def client_of(bootstrap: str) -> Client:
    """Returns this process's client of the cluster; the first call connects.

    Raises NETWORK_EXCEPTION if no broker answers.
    """
    return _client(bootstrap, os.getpid())


@lru_cache(maxsize=8)
def _client(bootstrap: str, process_id: int) -> Client:
    """Connects once per process id: workers are forked, and a child cannot use its parent's connections."""
    return connect(bootstrap, client_id=CLIENT_ID)
