"""Names the reasons for which connections end, as metrics and log lines show them."""

from enum import StrEnum


class CloseReason(StrEnum):
    """The reason of one close. The first reason counts if there are several."""

    CLIENT = "client"
    """The client closed the connection, or the network lost it."""
    IDLE = "idle"
    """The client stopped in the middle of a request."""
    SLOW = "slow"
    """The client took no data of its responses."""
    MEMORY = "memory"
    """A slow, incomplete request held memory that other requests needed."""
    MALFORMED = "malformed"
    """The client sent bytes that are not a request."""
    TLS = "tls"
    """The client began a TLS handshake on a port without TLS."""
    UNSUPPORTED = "unsupported"
    """The client used an API or version that is not served, and the protocol has no response for that case."""
    FAILED = "failed"
    """A request failed that has no response, such as a write with acks=0."""
    ERROR = "error"
    """The broker failed unexpectedly; its log has the exception or the disk error."""
    REFUSED = "refused"
    """Too few file descriptors were left."""
    DRAIN = "drain"
    """The broker stopped."""
