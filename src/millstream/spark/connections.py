"""Clients of this process: Spark keeps its Python workers, so their connections are kept too."""

import os
from functools import lru_cache

from millstream.sdk.sync.client import Client, connect

CLIENT_ID = "millstream-spark"


def client_of(bootstrap: str) -> Client:
    """This process's client of the cluster, made when it is first asked for; NETWORK_EXCEPTION when nobody answers."""
    return _client(bootstrap, os.getpid())


@lru_cache(maxsize=8)
def _client(bootstrap: str, process_id: int) -> Client:
    """Workers are forked: what the parent had open is not theirs."""
    return connect(bootstrap, client_id=CLIENT_ID)
