"""Sends the client's version and the connection's role on each new connection.

Brokers that do not support these requests, such as Apache Kafka, do not get them; they enforce no roles and no version
window.
"""

from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.roles import Role
from millstream.model.versions import work_together
from millstream.sdk import requests
from millstream.sdk.connection.connection import BrokerConnection, ConnectionLostError
from millstream.sdk.responses import BrokerInfo


class ConnectionRole(NamedTuple):
    """The role of a connection, and the producer group of a producer."""

    role: Role | None = None
    producer_group: str | None = None


IDLE = ConnectionRole()


class Handshake:
    """Checks the versions and declares the role on a new connection, before it is used.

    Raises VERSION_WINDOW, naming both versions, if client or broker does not support the other's version. Other errors
    of the broker, such as ROLE_IS_FINAL, are raised unchanged.
    """

    def __init__(self, version: str, role: ConnectionRole = IDLE) -> None:
        self._version = version
        self._role = role

    async def __call__(self, connection: BrokerConnection, timeout_s: float) -> None:
        role, producer_group = self._role
        try:
            if connection.serves(requests.INFO):
                info = await connection.request(requests.info(self._version), timeout_s)
                self._check(connection.address, info)
            if role is not None and connection.serves(requests.ROLE):
                await connection.request(requests.role(role, producer_group), timeout_s)
        except ConnectionLostError as error:
            raise MillstreamError(error.code, error.detail) from error  # A repeated handshake is harmless.

    def _check(self, address: str, info: BrokerInfo) -> None:
        if info.warning or not work_together(self._version, info.version):
            text = (
                f"this SDK has version {self._version}, the broker at {address} {info.version}; "
                "they work together up to two minor versions apart"
            )
            raise MillstreamError(ErrorCode.VERSION_WINDOW, text)
