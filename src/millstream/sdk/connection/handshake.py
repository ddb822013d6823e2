"""What a client says first on each of its connections: which version it has, and which role the connection takes.

Brokers that do not know these questions (Apache Kafka, say) are not asked them; they keep no roles and no window.
"""

from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.roles import Role
from millstream.model.versions import work_together
from millstream.sdk import requests
from millstream.sdk.connection.connection import BrokerConnection, ConnectionLostError
from millstream.sdk.responses import BrokerInfo


class ConnectionRole(NamedTuple):
    """What a connection is for: a role, and the group that a producer writes under."""

    role: Role | None = None
    producer_group: str | None = None


IDLE = ConnectionRole()


class Handshake:
    """Said on each new connection before it is used.

    VERSION_WINDOW, naming both versions, when either end finds the other too far away; ROLE_IS_FINAL and the broker's
    other refusals as they are.
    """

    def __init__(self, version: str, part: ConnectionRole = IDLE) -> None:
        self._version = version
        self._part = part

    async def __call__(self, connection: BrokerConnection, timeout_s: float) -> None:
        role, producer_group = self._part
        try:
            if connection.serves(requests.INFO):
                info = await connection.request(requests.info(self._version), timeout_s)
                self._check(connection.address, info)
            if role is not None and connection.serves(requests.ROLE):
                await connection.request(requests.role(role, producer_group), timeout_s)
        except ConnectionLostError as error:
            raise MillstreamError(error.code, error.detail) from error  # Nothing that matters is in doubt.

    def _check(self, address: str, info: BrokerInfo) -> None:
        if info.warning or not work_together(self._version, info.version):
            text = (
                f"this SDK has version {self._version}, the broker at {address} {info.version}; "
                "they work together up to two minor versions apart"
            )
            raise MillstreamError(ErrorCode.VERSION_WINDOW, text)
