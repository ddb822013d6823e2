"""Decides whether a process was to log JSON, when its settings are wrong, and logs that failure as JSON.

Settings that cannot be loaded have no format for their own error. The format is therefore read without the others.
"""

import os
from collections.abc import Sequence
from itertools import pairwise

from millstream.model.errors import MillstreamError
from millstream.process import logs
from millstream.process.exit_codes import exit_code
from millstream.process.settings import ENVIRONMENT_PREFIX, GATEWAY_PREFIX

_PREFIXES = {"serve": ENVIRONMENT_PREFIX, "gateway": GATEWAY_PREFIX}


def wants_json_logs(arguments: Sequence[str]) -> bool:
    """True if this command line starts a process whose flag, variable or settings file selects JSON logs."""
    prefix = _PREFIXES.get(arguments[0]) if arguments else None
    if prefix is None or "--check" in arguments:
        return False
    format_ = _flag(arguments, "--log-format") or os.environ.get(prefix + "LOG_FORMAT")
    if format_ is None:
        path = _flag(arguments, "--config") or os.environ.get(prefix + "CONFIG")
        format_ = _format_in(path) if path else None
    return format_ == "json"


def log_failure(error: MillstreamError) -> int:
    """Logs why the process cannot start. Returns the exit code."""
    logs.configure("info", "json")
    logs.report_failure(error.detail)
    return exit_code(error)


def _flag(arguments: Sequence[str], flag: str) -> str | None:
    """Returns the last value of a flag."""
    values = [value for name, joined, value in (each.partition("=") for each in arguments) if joined and name == flag]
    values += [value for name, value in pairwise(arguments) if name == flag]
    return values[-1] if values else None


def _format_in(path: str) -> str | None:
    import tomllib

    try:
        with open(path, "rb") as file:
            return str(tomllib.load(file).get("log_format"))
    except (OSError, ValueError):
        return None
