"""Loads a process's settings from flags, environment, a TOML file and defaults, in this order of precedence.

A settings table is a struct whose fields carry limits and help texts. A field's name is its name everywhere:
`kafka_port` is `--kafka-port`, an environment variable with the table's prefix, and `kafka_port = …` in the file. An
unknown name is an error in every source, because a setting that is silently ignored is worse than an error.
"""

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.units import format_duration_ms, format_size_bytes, read_duration_ms, read_size_bytes
from millstream.process.parent_watch import CONTROL_VARIABLE, PARENT_VARIABLE

S = TypeVar("S", bound=msgspec.Struct)

ENVIRONMENT_PREFIX = "MILLSTREAM_"
GATEWAY_PREFIX = "MILLSTREAM_GATEWAY_"
CLIENT_VARIABLES = ("MILLSTREAM_BOOTSTRAP", "MILLSTREAM_CLIENT_CONFIG", "MILLSTREAM_CONTEXT", "MILLSTREAM_DEBUG")
"""Variables with the prefix MILLSTREAM_ that are not settings of a process."""

DURATION = Meta(extra={"kind": "duration"})
SIZE = Meta(extra={"kind": "size"})
PORT = Meta(ge=0, le=65_535, extra={"kind": "port"})
OPTIONAL_PORT = Meta(ge=-1, le=65_535, extra={"kind": "port", "off": True})

SECRET = Meta(extra={"secret": True})
"""Marks a setting whose value must not be logged."""

PORT_OFF = -1

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["console", "json"]

_SERVICE_VARIABLE = re.compile(r"_SERVICE_HOST$|_SERVICE_PORT(_\w+)?$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$")
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")
_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")
_FORMATS: Mapping[str, Callable[[int], str]] = {"duration": format_duration_ms, "size": format_size_bytes}
_BY_TYPE = {bool: "truth", int: "whole", str: "text", dict: "pairs", tuple: "list"}


class SettingField(NamedTuple):
    """One setting, as the command line and the documentation show it."""

    name: str
    type: Any
    default: Any
    help: str
    kind: str
    """Format of its text: text, whole, truth, choice, list, pairs, duration, size or port."""
    choices: tuple[str, ...]
    variable: str
    can_be_off: bool
    is_secret: bool

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def default_text(self) -> str:
        """The default in readable units, or an empty text."""
        value = self.default
        if isinstance(value, bool):
            return str(value).lower()
        if self.kind in _FORMATS:
            return _FORMATS[self.kind](value)
        if self.can_be_off and value == PORT_OFF:
            return "off"
        return "" if isinstance(value, dict) else ",".join(value) if isinstance(value, tuple) else str(value)

    @property
    def is_repeatable(self) -> bool:
        """True if its flag may be given several times, each time with a part of the value."""
        return self.kind == "pairs"


class SettingsTable(Generic[S]):
    """The settings of one kind of process."""

    def __init__(
        self, kind: type[S], prefix: str, *, not_settings: Collection[str] = (), not_prefix: str | None = None
    ) -> None:
        """Ignores the environment variables in `not_settings`, and those that begin with `not_prefix`."""
        self.kind = kind
        self.config_variable = prefix + "CONFIG"
        self.fields: Mapping[str, SettingField] = _fields(kind, prefix)
        self._sources: dict[str, str] = {}
        """The source of each setting that the last `load` found."""
        self._prefix = prefix
        self._not_settings = {self.config_variable, PARENT_VARIABLE, CONTROL_VARIABLE, *not_settings}
        self._not_prefix = not_prefix

    def load(
        self, flags: Mapping[str, object], environment: Mapping[str, str], config: tuple[str, str] | None = None
    ) -> S:
        """Returns the effective settings.

        `flags` maps field names to the values of flags; None means that a flag was not given. `config` is the name and
        the text of a TOML file. Raises INVALID_SETTING, which lists every wrong field with its value and its source.
        """
        problems: list[str] = []
        merged: dict[str, Any] = {}
        given = {name: value for name, value in flags.items() if value is not None}
        sources = [
            self._from_file(config, problems) if config else {},
            self._from_environment(environment, problems),
            {name: (value, self.fields[name].flag) for name, value in given.items()},
        ]
        for source in sources:
            for name, (value, where) in source.items():
                try:
                    merged[name] = _read_value(self.fields[name], value)
                except (ValueError, msgspec.ValidationError) as problem:
                    problems.append(f"{name} = {value!r} ({where}): {_lowered(str(problem))}")
        if problems:
            raise MillstreamError(ErrorCode.INVALID_SETTING, "\n".join(problems))
        self._sources = {name: where for source in sources for name, (_, where) in source.items()}
        return self.kind(**merged)

    def log_changed(self, logger: logging.Logger, settings: S) -> None:
        """Logs each setting that differs from its default, with its source. Secrets are masked."""
        for name, field in self.fields.items():
            value = getattr(settings, name)
            if value != field.default:
                is_off = field.can_be_off and value == PORT_OFF
                shown = "***" if field.is_secret else "off" if is_off else _as_text(value)
                source = self._sources.get(name, "program")
                logger.info("setting applied", extra={"setting": name, "value": shown, "source": source})

    def as_flags(self, settings: S) -> list[str]:
        """Returns command-line arguments for these settings. Settings at their defaults are left out."""
        arguments = []
        for name, field in self.fields.items():
            value = getattr(settings, name)
            if value != field.default:
                arguments += [f"{field.flag}={_as_text(value)}"]
        return arguments

    def _from_environment(self, environment: Mapping[str, str], problems: list[str]) -> dict[str, tuple[object, str]]:
        known = {field.variable: name for name, field in self.fields.items()}
        found: dict[str, tuple[object, str]] = {}
        for variable in sorted(environment):
            if not variable.startswith(self._prefix) or self._is_not_ours(variable, environment[variable]):
                continue
            if variable in known:
                found[known[variable]] = (environment[variable], f"environment variable {variable}")
            else:
                hint = _nearest(variable, [*known, *self._not_settings])
                problems.append(f"there is no setting for the environment variable {variable}{hint}")
        return found

    def _is_not_ours(self, variable: str, value: str) -> bool:
        prefix = self._not_prefix
        is_foreign = variable in self._not_settings or (prefix is not None and variable.startswith(prefix))
        return is_foreign or is_of_kubernetes(variable, value)

    def _from_file(self, config: tuple[str, str], problems: list[str]) -> dict[str, tuple[object, str]]:
        import tomllib  # imported on demand, so that a process without a file starts sooner

        path, text = config
        try:
            rows = tomllib.loads(text)
        except tomllib.TOMLDecodeError as problem:
            problems.append(f"{path} is not valid TOML: {problem}")
            return {}
        found: dict[str, tuple[object, str]] = {}
        for name, value in rows.items():
            if name in self.fields:
                found[name] = (value, f"file {path}")
            else:
                problems.append(f"there is no setting {name!r} (file {path}){_nearest(name, [*self.fields])}")
        return found


def is_of_kubernetes(variable: str, value: str) -> bool:
    """True if Kubernetes injects this variable for a Service, whose name may begin like the prefix of the settings.

    For the Service `millstream`, it sets MILLSTREAM_PORT=tcp://10.0.0.1:9092, MILLSTREAM_SERVICE_HOST,
    MILLSTREAM_SERVICE_PORT_KAFKA, MILLSTREAM_PORT_9092_TCP_ADDR and more.
    """
    if variable.endswith("_PORT") and _SERVICE_URL.match(value):
        return True
    return _SERVICE_VARIABLE.search(variable) is not None


def _fields(kind: type[msgspec.Struct], prefix: str) -> dict[str, SettingField]:
    table = {}
    hints = get_type_hints(kind, include_extras=True)
    for row in msgspec.structs.fields(kind):
        hint = hints[row.name]
        plain, metas = hint.__origin__, hint.__metadata__
        origin = getattr(plain, "__origin__", plain)
        extra = {key: value for meta in metas if meta.extra for key, value in meta.extra.items()}
        choices = get_args(plain) if origin is Literal else ()
        read_as = extra.get("kind") or ("choice" if choices else _BY_TYPE[origin])
        text = next(meta.description for meta in metas if meta.description)
        default = row.default_factory() if row.default is msgspec.NODEFAULT else row.default
        variable = prefix + row.name.upper()
        table[row.name] = SettingField(
            row.name,
            hint,
            default,
            text,
            read_as,
            choices,
            variable,
            can_be_off=extra.get("off", False),
            is_secret=extra.get("secret", False),
        )
    return table


def _read_value(field: SettingField, value: object) -> Any:
    """Converts a text or a TOML value to the field's type."""
    if isinstance(value, str):
        value = _read_text(field, value)
    result = msgspec.convert(value, field.type)
    if field.kind == "list" and not (result and all(result)):
        raise ValueError("expected a list of names, none of them empty")
    return result


def _read_text(field: SettingField, text: str) -> object:
    read = _READERS.get(field.kind)
    if read is not None:
        return read(text)
    if field.kind in ("whole", "port"):
        return PORT_OFF if field.can_be_off and text == "off" else _whole(text)
    if field.choices and text not in field.choices:
        raise ValueError(f"expected one of {', '.join(field.choices)}")
    return text


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("expected a whole number") from None


def _truth(text: str) -> bool:
    if text.lower() not in _TRUE + _FALSE:
        raise ValueError("expected true or false")
    return text.lower() in _TRUE


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def _pairs(text: str) -> dict[str, str]:
    """Parses `name=value;name=value`."""
    pairs: dict[str, str] = {}
    for part in text.split(";"):
        name, is_pair, value = (each.strip() for each in part.partition("="))
        if not (name and is_pair and value):
            raise ValueError("expected name=value, several separated by semicolons")
        if name in pairs:
            raise ValueError(f"{name} is given twice")
        pairs[name] = value
    return pairs


_READERS: Mapping[str, Callable[[str], object]] = {
    "duration": read_duration_ms,
    "size": read_size_bytes,
    "truth": _truth,
    "list": _list,
    "pairs": _pairs,
}


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return ";".join(f"{name}={each}" for name, each in value.items())
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _nearest(name: str, known: Sequence[str]) -> str:
    import difflib  # only needed for an error message

    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; known names: {', '.join(sorted(known))}"


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:].replace("`", "")
