"""Builds the error for a request that the connection's role forbids.

A row of the dispatch table names the role that may use its API. APIs without a role (metadata, offsets,
administration) are open to every role. A connection of another role gets POLICY_VIOLATION, or ROLE_IS_FINAL from
Millstream's own APIs. The response contains the error message if it has a field for it. A refused request has no
effect.
"""

from millstream.broker.net.client_info import ClientInfo
from millstream.model.errors import ErrorCode, MillstreamError

OWN_KEYS_FROM = 1000


def wrong_role(key: int, api: str, peer: ClientInfo) -> MillstreamError:
    """Return the error of a request that the peer's role forbids."""
    code = ErrorCode.ROLE_IS_FINAL if key >= OWN_KEYS_FROM else ErrorCode.POLICY_VIOLATION
    return MillstreamError(code, f"this connection is {peer}'s, which may not use {api}")
