"""Logs an unexpected exception of a background task and makes it a CLIENT_FAILED error for the next caller."""

import logging

from millstream.model.errors import ErrorCode, MillstreamError


def client_failed(log: logging.Logger, what: str, error: Exception) -> MillstreamError:
    """Log the exception with its traceback and return the CLIENT_FAILED error to raise in a caller."""
    log.error("%s failed unexpectedly", what, exc_info=error)
    return MillstreamError(ErrorCode.CLIENT_FAILED, f"{what} failed: {error!r}")
