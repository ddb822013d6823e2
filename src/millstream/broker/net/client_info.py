"""Who is at the other end of a connection, as far as it said.

Invariant: a role is declared once; it and the producer group never change afterwards.
"""

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.roles import Role


class ClientInfo:
    """One connection's other end. Without a role it may do everything."""

    __slots__ = ("address", "producer_group", "role")

    def __init__(self, address: str = "?") -> None:
        self.address = address
        self.role: Role | None = None
        self.producer_group: str | None = None

    def declare(self, role: Role, producer_group: str | None) -> None:
        """Take this role for good; ROLE_IS_FINAL when another was taken before. The same again changes nothing."""
        if self.role is None:
            self.role, self.producer_group = role, producer_group
        elif (self.role, self.producer_group) != (role, producer_group):
            raise MillstreamError(ErrorCode.ROLE_IS_FINAL, f"this connection is {self}'s, and stays that")

    def __str__(self) -> str:
        what = "nobody" if self.role is None else f"a {self.role.name.lower()}"
        return f"{what} of group {self.producer_group!r}" if self.producer_group is not None else what
