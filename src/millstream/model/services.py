"""Describes the services of a cluster: the brokers' listeners and other processes."""

from typing import NamedTuple

from millstream.model.ids import BrokerId

NO_PORT = -1


class Service(NamedTuple):
    """One service and its address.

    `kind` is kafka, operator, http, grpc, console, catalog, spark-master or pipeline.

    `port` is NO_PORT for a service without a port.
    """

    kind: str
    node_id: BrokerId
    host: str
    port: int
    detail: str = ""
