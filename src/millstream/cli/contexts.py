"""Changes the user's contexts, which give names to clusters. `process/contexts.py` describes the file and reads it.

A change is written to a temporary file, flushed and renamed, so a crash leaves either the old file or the new one.
Commands that change the file do not preserve comments.
"""

import json
import os
from pathlib import Path

from millstream.cli.failures import usage_error
from millstream.model.errors import MillstreamError
from millstream.process.contexts import Contexts, file_path

NAME_MAX = 64


def with_context(contexts: Contexts, name: str, bootstrap: str) -> Contexts:
    """Returns a copy with this context added or changed. The first context becomes the current one."""
    from millstream.sdk.connection.address import parse_bootstrap

    if not name or len(name) > NAME_MAX or not all(sign.isalnum() or sign in "._-" for sign in name):
        raise usage_error(f"{name!r} is not a valid context name; use only letters, digits, '.', '_' and '-'")
    try:
        parse_bootstrap(bootstrap)
    except MillstreamError as error:
        raise usage_error(f"--bootstrap: {error.detail}") from None
    current = contexts.current if contexts.bootstraps else name
    return Contexts({**contexts.bootstraps, name: bootstrap}, current)


def write_contexts(contexts: Contexts) -> Path:
    """Replaces the file and returns its path. Raises OSError if that fails, and then leaves the file unchanged."""
    path = Path(os.path.realpath(file_path()))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(_as_toml(contexts))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


def _as_toml(contexts: Contexts) -> str:
    # A JSON string is also a valid TOML basic string.
    lines = [] if contexts.current is None else [f"current = {json.dumps(contexts.current)}"]
    for name, bootstrap in sorted(contexts.bootstraps.items()):
        lines += ["", f"[contexts.{json.dumps(name)}]", f"bootstrap = {json.dumps(bootstrap)}"]
    return "\n".join(lines).strip() + "\n"
