"""Defines the address of a broker."""

from typing import NamedTuple

from millstream.model.ids import BrokerId


class BrokerEndpoint(NamedTuple):
    """A broker and the address under which clients reach it."""

    node_id: BrokerId
    host: str
    port: int
    rack: str | None = None
