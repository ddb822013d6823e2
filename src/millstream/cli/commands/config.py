"""Implements `millstream config list | describe | set | unset` for settings of topics, brokers and groups."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.failures import HintedError, failures_explained, usage_error
from millstream.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, DryRun, Timeout
from millstream.cli.output import print_json, print_line, print_table
from millstream.cli.setting_values import read_settings
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.setting_values import readable_setting

if TYPE_CHECKING:
    from millstream.cli.session import CommandSession
    from millstream.sdk.admin.admin_results import ConfigSetting, ResourceKind

app = typer.Typer(help="Show and change the settings of topics, brokers and groups.", no_args_is_help=True)


class ConfigOwner(StrEnum):
    """Kinds of resources that have settings."""

    topic = "topic"
    broker = "broker"
    group = "group"


Kind = Annotated[
    ConfigOwner, typer.Argument(metavar="topic|broker|group", help="Kind of resource.", show_default=False)
]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Name of the topic or group, or id of the broker (`all`: all brokers).", show_default=False
    ),
]


@app.command("list")
def list_settings(
    kind: Kind,
    name: Name,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Include settings at their defaults.")] = False,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List the settings that differ from their defaults."""
    with failures_explained(as_json):
        rows = _described(bootstrap, timeout, kind, name)
        rows = [row for row in rows if everything or row.source != "default"]
        if as_json:
            print_json(_documents(rows))
        elif rows:
            print_table(("setting", "value", "source"), [(row.name, _value(row), row.source) for row in rows])
        else:
            print_line("All settings are at their defaults; --all shows them.")


@app.command()
def describe(
    kind: Kind,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Name of the topic or group, or id of the broker (optional for topics).",
            show_default=False,
        ),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SETTING]...", help="Settings to show (default: all).", show_default=False),
    ] = None,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show settings with value, type, source of the value, and description.

    `millstream config describe topic`, without a name, lists all topic settings with Millstream's defaults, without
    connecting to a broker.
    """
    with failures_explained(as_json):
        rows = _topic_settings(kind) if name is None else _described(bootstrap, timeout, kind, name)
        _check_names(kind, name, names or (), [row.name for row in rows])
        rows = [row for row in rows if not names or row.name in names]
        if as_json:
            print_json(_documents(rows))
            return
        for row in rows:
            marks = "".join((", read only" if row.is_read_only else "", ", secret" if row.is_secret else ""))
            print_line(f"{row.name} = {_value(row)}")
            print_line(f"    {row.type}, {row.source}{marks}")
            for line in _wrapped(row.documentation):
                print_line(f"    {line}")


@app.command("set")
def set_settings(
    kind: Kind,
    name: Name,
    settings: Annotated[
        list[str],
        typer.Argument(metavar="NAME=VALUE...", help="Settings, such as retention.ms=7d.", show_default=False),
    ],
    dry_run: DryRun = False,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Change settings. If the broker refuses one of them, it changes none."""
    with failures_explained(as_json):
        chosen = read_settings(settings, "SETTING")
        _alter(bootstrap, timeout, kind, name, chosen, (), dry_run)
        if as_json:
            print_json({"kind": kind.value, "name": name, "set": chosen, "changed": not dry_run})
        else:
            for key, value in chosen.items():
                shown = f"{key} = {readable_setting(key, value)}"
                print_line(f"{'Would set' if dry_run else 'Set'} {shown} for {kind.value} {name}.")


@app.command()
def unset(
    kind: Kind,
    name: Name,
    settings: Annotated[list[str], typer.Argument(metavar="SETTING...", help="Names of settings.", show_default=False)],
    dry_run: DryRun = False,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Reset settings to their defaults."""
    with failures_explained(as_json):
        _alter(bootstrap, timeout, kind, name, {}, settings, dry_run)
        if as_json:
            print_json({"kind": kind.value, "name": name, "unset": settings, "changed": not dry_run})
        else:
            for key in settings:
                print_line(f"{'Would unset' if dry_run else 'Unset'} {key} for {kind.value} {name}.")


def _topic_settings(kind: ConfigOwner) -> "list[ConfigSetting]":
    """Returns all topic settings at their defaults, without a broker."""
    if kind is not ConfigOwner.topic:
        raise usage_error(f"missing argument NAME: give the name of the {kind.value}, or the id of a broker")
    from millstream.sdk.admin.admin_results import ConfigSetting
    from millstream.topics.setting_table import TABLE

    return sorted(
        ConfigSetting(row.name, row.default, row.kind.value, "default", False, False, False, row.doc)
        for row in TABLE.values()
    )


def _check_names(kind: ConfigOwner, name: str | None, settings: Sequence[str], known: Sequence[str]) -> None:
    from millstream.cli.suggestions import did_you_mean

    for setting in settings:
        if setting not in known:
            text = f"there is no setting {setting!r} for a {kind.value}{did_you_mean(setting, known)}"
            raise HintedError(ErrorCode.INVALID_CONFIG, text, _settings_hint(kind, name))


def _settings_hint(kind: ConfigOwner, name: str | None) -> str:
    command = f"millstream config describe {kind.value} {name or ''}".rstrip()
    return f"`{command}` lists all settings."


@contextmanager
def _session_for(bootstrap: str, timeout_s: float, kind: ConfigOwner, name: str) -> "Iterator[CommandSession]":
    """Opens a session. If the topic does not exist, the error suggests similar names."""
    from millstream.cli.session import connected
    from millstream.cli.suggestions import topic_expected

    with (
        connected(bootstrap, timeout_s) as session,
        topic_expected(session, name) if kind is ConfigOwner.topic else nullcontext(),
    ):
        yield session


def _described(bootstrap: str, timeout_s: float, kind: ConfigOwner, name: str) -> "list[ConfigSetting]":
    resource = _resource(kind, name)
    with _session_for(bootstrap, timeout_s, kind, name) as session:
        return session.run(session.client.admin.describe_settings(*resource, timeout_s=timeout_s))


def _alter(
    bootstrap: str,
    timeout_s: float,
    kind: ConfigOwner,
    name: str,
    chosen: dict[str, str],
    unset: Sequence[str],
    dry_run: bool,
) -> None:
    resource = _resource(kind, name)
    with _session_for(bootstrap, timeout_s, kind, name) as session:
        change = session.client.admin.alter_settings(
            *resource, chosen, unset=unset, validate_only=dry_run, timeout_s=timeout_s
        )
        try:
            session.run(change)
        except MillstreamError as error:
            if error.code is not ErrorCode.INVALID_CONFIG:
                raise
            raise HintedError(error.code, error.detail, _settings_hint(kind, name)) from None


def _resource(kind: ConfigOwner, name: str) -> "tuple[ResourceKind, str]":
    """Returns the resource as the protocol names it. The settings of all brokers have an empty name."""
    from millstream.sdk.admin.admin_results import ResourceKind

    if kind is ConfigOwner.broker:
        if name != "all" and not (name.isascii() and name.isdigit()):
            raise usage_error(f"{name!r} is not a broker id; give a number, or all")
        return ResourceKind.BROKER, "" if name == "all" else name
    return ResourceKind[kind.name.upper()], name


def _documents(rows: "Sequence[ConfigSetting]") -> list[dict[str, Any]]:
    return [
        {
            "name": row.name,
            "value": row.value,
            "type": row.type,
            "source": row.source,
            "own": row.is_own,
            "read_only": row.is_read_only,
            "secret": row.is_secret,
            "documentation": row.documentation,
        }
        for row in rows
    ]


def _value(row: "ConfigSetting") -> str:
    if row.value is None:
        return "(secret)" if row.is_secret else "(unset)"
    return readable_setting(row.name, row.value) or "(empty)"


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, 100)
