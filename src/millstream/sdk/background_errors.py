"""What nobody thought of must not end in silence what goes on in the background."""

import logging

from millstream.model.errors import ErrorCode, MillstreamError


def client_failed(log: logging.Logger, what: str, error: Exception) -> MillstreamError:
    """Log it; what whoever asks next is told."""
    log.error("%s failed unexpectedly", what, exc_info=error)
    return MillstreamError(ErrorCode.CLIENT_FAILED, f"{what} failed: {error!r}")
