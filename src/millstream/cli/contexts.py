"""Named clusters, in a file of the user's own.

The file is TOML: `current = "NAME"`, and for each context a table `[contexts."NAME"]` with `bootstrap = "HOST:PORT,…"`.
It is written whole, beside itself, flushed and then renamed: a crash leaves the old file or the new one. Comments in it
do not outlive a change made by a command.
"""

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from millstream.cli.failures import usage_error

FILE_VARIABLE = "MILLSTREAM_CLIENT_CONFIG"
CONTEXT_VARIABLE = "MILLSTREAM_CONTEXT"
NAME_MAX = 64


@dataclass(frozen=True, slots=True)
class Contexts:
    """What the file says; `current` is one of `bootstraps`, or None, unless somebody has edited the file."""

    bootstraps: dict[str, str] = field(default_factory=dict)
    current: str | None = None

    def bootstrap(self, name: str) -> str:
        """The brokers of a context; an error that names those there are."""
        if name in self.bootstraps:
            return self.bootstraps[name]
        known = ", ".join(self.bootstraps) or "none yet; `millstream context set` makes one"
        raise usage_error(f"there is no context {name!r}; there are: {known}")

    def chosen(self, name: str | None = None) -> str | None:
        """The brokers of this context, else of the current one; None where none is."""
        if name is None and self.current is not None and self.current not in self.bootstraps:
            text = f"the current context {self.current!r} is not in the file of contexts {file_path()}"
            raise usage_error(
                text, "`millstream context use NAME` chooses another, `millstream context list` shows them."
            )
        name = name or self.current
        return None if name is None else self.bootstrap(name)

    def with_context(self, name: str, bootstrap: str) -> "Contexts":
        """The same with this context added or changed; the first one becomes the current one."""
        from millstream.model.errors import MillstreamError
        from millstream.sdk.connection.address import parse_bootstrap

        if not name or len(name) > NAME_MAX or not all(sign.isalnum() or sign in "._-" for sign in name):
            raise usage_error(f"{name!r} is no name for a context; give letters, digits, '.', '_' and '-'")
        try:
            parse_bootstrap(bootstrap)
        except MillstreamError as error:
            raise usage_error(f"--bootstrap: {error.detail}") from None
        current = self.current if self.bootstraps else name
        return Contexts({**self.bootstraps, name: bootstrap}, current)

    def using(self, name: str) -> "Contexts":
        self.bootstrap(name)
        return replace(self, current=name)

    def without(self, name: str) -> "Contexts":
        self.bootstrap(name)
        left = {each: bootstrap for each, bootstrap in self.bootstraps.items() if each != name}
        return Contexts(left, None if self.current == name else self.current)


def file_path() -> Path:
    """The contexts' file: MILLSTREAM_CLIENT_CONFIG, else `millstream/config.toml` in the user's settings."""
    chosen = os.environ.get(FILE_VARIABLE)
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_CONFIG_HOME") or ""
    # A relative path there is to be ignored, says the standard that invented the variable.
    base = Path(home) if os.path.isabs(home) else Path.home() / ".config"
    return base / "millstream" / "config.toml"


def read_contexts() -> Contexts:
    """What the file says; nothing where there is none. A file that cannot be understood is an error that says why."""
    path = file_path()
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except (OSError, UnicodeDecodeError) as error:
        raise usage_error(f"the file of contexts {path} cannot be read: {error}") from None
    import tomllib

    try:
        return _understood(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, ValueError) as error:
        raise usage_error(f"the file of contexts {path} cannot be understood: {error}") from None


def _understood(document: dict[str, Any]) -> Contexts:
    unknown = sorted(document.keys() - {"current", "contexts"})
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no setting of it")
    tables = document.get("contexts", {})
    current = document.get("current")
    if not isinstance(tables, dict) or not isinstance(current, str | None):
        raise ValueError("'current' is a name, and contexts are tables")
    for name, table in tables.items():
        if not isinstance(table, dict) or table.keys() != {"bootstrap"} or not isinstance(table["bootstrap"], str):
            raise ValueError(f"context {name!r} has to have one setting, bootstrap, a text")
    return Contexts({name: table["bootstrap"] for name, table in tables.items()}, current)


def write_contexts(contexts: Contexts) -> Path:
    """Replace the file; its path. OSError where that is not possible, and then it is as it was."""
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
    # What JSON makes of a text is what TOML calls a basic string.
    lines = [] if contexts.current is None else [f"current = {json.dumps(contexts.current)}"]
    for name, bootstrap in sorted(contexts.bootstraps.items()):
        lines += ["", f"[contexts.{json.dumps(name)}]", f"bootstrap = {json.dumps(bootstrap)}"]
    return "\n".join(lines).strip() + "\n"
