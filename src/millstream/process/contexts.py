"""Finds the brokers that a user chose: in the environment, or in the file of contexts, which give names to clusters.

The file is TOML: `current = "NAME"`, and for each context a table `[contexts."NAME"]` with `bootstrap = "HOST:PORT,…"`.
The command line writes it (`cli/contexts.py`); clients of the SDK and the command line read it.
"""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from millstream.model.default_bootstrap import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP
from millstream.model.errors import ErrorCode, MillstreamError

FILE_VARIABLE = "MILLSTREAM_CLIENT_CONFIG"
CONTEXT_VARIABLE = "MILLSTREAM_CONTEXT"


class FoundBootstrap(NamedTuple):
    """A list of bootstrap brokers, and a description of where it was found, for error messages."""

    bootstrap: str
    origin: str


def find_bootstrap() -> FoundBootstrap:
    """Return the brokers in MILLSTREAM_BOOTSTRAP, of the context in MILLSTREAM_CONTEXT or of the current context.

    Without any of them the result is the default address. Raises INVALID_SETTING for an unknown context and for an
    invalid file.
    """
    given = os.environ.get(BOOTSTRAP_VARIABLE)
    if given:
        return FoundBootstrap(given, f"the environment variable {BOOTSTRAP_VARIABLE}")
    name = os.environ.get(CONTEXT_VARIABLE) or None
    contexts = read_contexts()
    chosen = contexts.chosen(name)
    if chosen is not None:
        return FoundBootstrap(chosen, f"context {name or contexts.current!r} in {file_path()}")
    return FoundBootstrap(DEFAULT_BOOTSTRAP, f"the default, because {BOOTSTRAP_VARIABLE} and contexts are not set")


@dataclass(frozen=True, slots=True)
class Contexts:
    """The content of the file. `current` is None or a key of `bootstraps`, unless a user edited the file by hand."""

    bootstraps: dict[str, str] = field(default_factory=dict)
    current: str | None = None

    def bootstrap(self, name: str) -> str:
        """Return the brokers of a context. If it does not exist, the error lists the existing contexts."""
        if name in self.bootstraps:
            return self.bootstraps[name]
        known = ", ".join(self.bootstraps) or "none yet; `millstream context set` creates one"
        raise _invalid(f"context {name!r} does not exist; existing contexts: {known}")

    def chosen(self, name: str | None = None) -> str | None:
        """Return the brokers of this context, or else of the current one.

        Returns None if there is no current context.
        """
        if name is None and self.current is not None and self.current not in self.bootstraps:
            raise _invalid(
                f"the current context {self.current!r} is not in the file {file_path()}; "
                "`millstream context use NAME` selects another, `millstream context list` lists them"
            )
        name = name or self.current
        return None if name is None else self.bootstrap(name)

    def using(self, name: str) -> "Contexts":
        self.bootstrap(name)
        return replace(self, current=name)

    def without(self, name: str) -> "Contexts":
        self.bootstrap(name)
        left = {each: bootstrap for each, bootstrap in self.bootstraps.items() if each != name}
        return Contexts(left, None if self.current == name else self.current)


def _invalid(detail: str) -> MillstreamError:
    return MillstreamError(ErrorCode.INVALID_SETTING, detail)


def file_path() -> Path:
    """Return the file's path: MILLSTREAM_CLIENT_CONFIG, or `millstream/config.toml` in XDG_CONFIG_HOME (~/.config)."""
    chosen = os.environ.get(FILE_VARIABLE)
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_CONFIG_HOME") or ""
    # The XDG specification says that a relative path must be ignored.
    base = Path(home) if os.path.isabs(home) else Path.home() / ".config"
    return base / "millstream" / "config.toml"


def read_contexts() -> Contexts:
    """Read the file. A missing file has no contexts; an invalid file raises INVALID_SETTING with the reason."""
    path = file_path()
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except (OSError, UnicodeDecodeError) as error:
        raise _invalid(f"cannot read the contexts file {path}: {error}") from None
    import tomllib

    try:
        return _validated(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, ValueError) as error:
        raise _invalid(f"the contexts file {path} is invalid: {error}") from None


def _validated(document: dict[str, Any]) -> Contexts:
    unknown = sorted(document.keys() - {"current", "contexts"})
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; expected 'current' and 'contexts'")
    tables = document.get("contexts", {})
    current = document.get("current")
    if not isinstance(tables, dict) or not isinstance(current, str | None):
        raise ValueError("'current' must be a string, and 'contexts' must contain tables")
    for name, table in tables.items():
        if not isinstance(table, dict) or table.keys() != {"bootstrap"} or not isinstance(table["bootstrap"], str):
            raise ValueError(f"context {name!r} must have exactly one key, 'bootstrap', with a string")
    return Contexts({name: table["bootstrap"] for name, table in tables.items()}, current)
