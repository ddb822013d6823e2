"""What runs in a cluster besides the brokers' own listeners."""

from typing import NamedTuple

NO_PORT = -1


class Service(NamedTuple):
    """One service. `kind` is kafka, operator, http, grpc, console, catalog, spark-master or pipeline.

    `port` may be NO_PORT.
    """

    kind: str
    node_id: int
    host: str
    port: int
    detail: str = ""
