"""Holds the principal of a connection's peer and the role that it has declared.

Invariant: a role is declared once. The role and the producer group never change afterwards.
"""

from itertools import count

from millstream.model.authorization import Principal
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.roles import Role
from millstream.process.client_events import CLIENT_ID_CHARACTERS_MAX

_numbers = count(1)


class ClientInfo:
    """The peer of one connection. Without a role it may use the APIs of every role."""

    __slots__ = ("client_id", "number", "port", "principal", "producer_group", "role")

    def __init__(self) -> None:
        self.number = next(_numbers)
        """A number that no other connection of this process has. Never 0."""
        self.principal = Principal()
        """Anonymous, since there are no logins yet."""
        self.client_id: str | None = None
        """The client id of the first request, for log lines; None before that request."""
        self.port: int | None = None
        self.role: Role | None = None
        self.producer_group: str | None = None

    @property
    def address(self) -> str:
        return self.principal.host

    @property
    def endpoint(self) -> str:
        """The address and port, for log lines: they identify the connection in the tools of the system."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return host if self.port is None else f"{host}:{self.port}"

    def connected(self, host: str, port: int | None = None) -> None:
        """Set the host and port of the peer when the connection opens."""
        assert self.role is None, "a role is declared after the connection opens"
        self.principal = Principal(host)
        self.port = port

    def introduced(self, client_id: memoryview) -> None:
        """Set the client id from the header of the first request. It may be invalid: handlers refuse it."""
        some = bytes(client_id[: 4 * CLIENT_ID_CHARACTERS_MAX])
        self.client_id = some.decode("utf-8", "replace")[:CLIENT_ID_CHARACTERS_MAX]

    def declare(self, role: Role, producer_group: str | None) -> None:
        """Set role and producer group. Raises ROLE_IS_FINAL if a different role or group was declared before."""
        if self.role is None:
            self.role, self.producer_group = role, producer_group
        elif (self.role, self.producer_group) != (role, producer_group):
            raise MillstreamError(
                ErrorCode.ROLE_IS_FINAL,
                f"the role of this connection is already {self}; open another connection for a different role or group",
            )

    def __str__(self) -> str:
        what = "nobody" if self.role is None else f"a {self.role.name.lower()}"
        return f"{what} of group {self.producer_group!r}" if self.producer_group is not None else what
