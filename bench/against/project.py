"""Reads the names of the command and the package from a commit's pyproject.toml."""

import tomllib
from dataclasses import dataclass


class ProjectError(RuntimeError):
    """The pyproject.toml does not name a command that can be started."""


@dataclass(frozen=True, slots=True)
class Project:
    """Names from a pyproject.toml."""

    command: str
    module: str
    """The module that holds the command's function."""
    function: str
    requirements: frozenset[str]
    """The packages that the project needs, as it declares them."""

    @property
    def package(self) -> str:
        return self.module.partition(".")[0]

    @property
    def environment_prefix(self) -> str:
        """Prefix of the environment variables that hold the command's settings."""
        return f"{self.command.upper().replace('-', '_')}_"


def read_project(text: str) -> Project:
    """Parses a pyproject.toml. If it declares several commands, the one with the project's name is used."""
    try:
        table = tomllib.loads(text).get("project", {})
    except tomllib.TOMLDecodeError as error:
        raise ProjectError(f"pyproject.toml is not valid TOML: {error}") from error
    scripts, name = table.get("scripts", {}), table.get("name")
    command = next(iter(scripts)) if len(scripts) == 1 else name
    if command not in scripts:
        found = ", ".join(scripts) or "none"
        raise ProjectError(f'pyproject.toml: [project.scripts] has no command "{name}" (found: {found})')
    module, colon, function = scripts[command].partition(":")
    if not (colon and module and function.isidentifier()):
        raise ProjectError(f'pyproject.toml: {command} = "{scripts[command]}" does not have the form "module:function"')
    return Project(command, module, function, frozenset(table.get("dependencies", ())))
