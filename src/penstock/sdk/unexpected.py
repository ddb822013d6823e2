"""What nobody thought of must not end in silence what goes on in the background."""

import logging

from penstock.model.errors import ErrorCode, PenstockError


def client_failed(log: logging.Logger, what: str, error: Exception) -> PenstockError:
    """Log it; what whoever asks next is told."""
    log.error("%s failed unexpectedly", what, exc_info=error)
    return PenstockError(ErrorCode.CLIENT_FAILED, f"{what} failed: {error!r}")
