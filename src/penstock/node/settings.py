"""What a broker can be told at start: one table, read from flags, environment, a TOML file and defaults, in that order.

A name is written once, here: `kafka_port` is `--kafka-port`, `PENSTOCK_KAFKA_PORT` and `kafka_port = …` in the file.
A name that nothing knows is an error, wherever it stands: a setting that silently does nothing is worse than none.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec import Meta

from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.units import read_duration_ms, read_size_bytes

ENVIRONMENT_PREFIX = "PENSTOCK_"
CONFIG_VARIABLE = "PENSTOCK_CONFIG"
CLIENT_VARIABLES = frozenset(
    {CONFIG_VARIABLE, "PENSTOCK_BOOTSTRAP", "PENSTOCK_CLIENT_CONFIG", "PENSTOCK_CONTEXT", "PENSTOCK_DEBUG"}
)
"""Variables with our prefix that are not settings of the broker."""

_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")

_DURATION = Meta(extra={"kind": "duration"})
_SIZE = Meta(extra={"kind": "size"})
_PORT = Meta(le=65_535, extra={"kind": "port"})

HOUR_MS = 3_600_000


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a broker can be told. Durations are in milliseconds, sizes in bytes, -1 is no limit."""

    data: Annotated[tuple[str, ...], Meta(description="Directory for the data; several are separated by commas.")] = (
        "./penstock-data",
    )
    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    advertised_host: Annotated[
        str, Meta(description="Name under which clients reach this broker; empty: the address it listens on.")
    ] = ""
    kafka_port: Annotated[int, _PORT, Meta(ge=0, description="Port of the Kafka protocol; 0: any that is free.")] = 9092
    operator_port: Annotated[
        int, _PORT, Meta(ge=-1, description="Port of /metrics, /health and /ready; 0: any that is free, off: none.")
    ] = 9644
    flush: Annotated[
        Literal["always", "interval", "os"],
        Meta(description="When an acknowledgement may leave: after a flush to disk, or before one."),
    ] = "always"
    flush_interval_ms: Annotated[
        int, _DURATION, Meta(ge=1, description="How often flush=interval flushes: the most a power loss can take.")
    ] = 1_000
    retention_ms: Annotated[
        int, _DURATION, Meta(ge=-1, description="Age at which messages are removed, unless their topic says otherwise.")
    ] = 7 * 24 * HOUR_MS
    retention_bytes: Annotated[
        int, _SIZE, Meta(ge=-1, description="Size a partition is kept to, unless its topic says otherwise.")
    ] = -1
    segment_bytes: Annotated[
        int, _SIZE, Meta(ge=16_384, le=2**31 - 1, description="Size at which a partition begins a new file.")
    ] = 256 * 2**20
    segment_ms: Annotated[
        int,
        _DURATION,
        Meta(ge=1_000, description="Age at which a partition begins a new file; expiry may be so late."),
    ] = 24 * HOUR_MS
    cleaner_interval_ms: Annotated[
        int, _DURATION, Meta(ge=1, description="How often compaction looks for something to do.")
    ] = 15_000
    cleaner_bytes_per_s: Annotated[
        int, _SIZE, Meta(ge=2**16, description="Most that compaction reads and writes in a second.")
    ] = 32 * 2**20
    cleaner_memory_bytes: Annotated[
        int, _SIZE, Meta(ge=2**16, description="Memory that compaction may take for keys, while it runs.")
    ] = 64 * 2**20
    auto_create: Annotated[bool, Meta(description="Writing to a topic that is not there makes it.")] = True
    default_partitions: Annotated[
        int, Meta(ge=1, le=10_000, description="Partitions of a topic made without saying how many.")
    ] = 1
    offsets_partitions: Annotated[
        int, Meta(ge=1, le=1_000, description="Partitions of __consumer_offsets, when the first group makes it.")
    ] = 16
    offsets_retention_ms: Annotated[
        int,
        _DURATION,
        Meta(ge=1, description="How long offsets are kept that a group has committed and nobody needs any more."),
    ] = 7 * 24 * HOUR_MS
    group_initial_rebalance_delay_ms: Annotated[
        int, _DURATION, Meta(ge=0, description="How long an empty classic group waits for more than its first member.")
    ] = 100
    group_session_timeout_min_ms: Annotated[
        int, _DURATION, Meta(ge=1, description="Shortest session timeout that a member of a classic group may ask for.")
    ] = 6_000
    group_session_timeout_max_ms: Annotated[
        int, _DURATION, Meta(ge=1, description="Longest session timeout that a member of a classic group may ask for.")
    ] = 1_800_000
    group_max_size: Annotated[int, Meta(ge=1, description="Members that a group may have.")] = 10_000
    consumer_session_timeout_ms: Annotated[
        int, _DURATION, Meta(ge=1, description="After such silence a member of the new group protocol is gone.")
    ] = 45_000
    consumer_heartbeat_interval_ms: Annotated[
        int, _DURATION, Meta(ge=1, description="How often members of the new group protocol are to be heard of.")
    ] = 5_000
    consumer_assignment_interval_ms: Annotated[
        int, _DURATION, Meta(ge=0, description="Least time between two assignments of a group of the new protocol.")
    ] = 1_000
    iterator_in_flight_ms: Annotated[
        int,
        _DURATION,
        Meta(ge=1_000, le=24 * HOUR_MS, description="How long an iterator is in flight whose client does not say."),
    ] = 30_000
    iterator_in_flight_max_ms: Annotated[
        int,
        _DURATION,
        Meta(ge=1_000, le=24 * HOUR_MS, description="Longest time in flight that a client of iterators may ask for."),
    ] = 600_000
    message_id_window_ms: Annotated[
        int, _DURATION, Meta(ge=1_000, description="How long the id of a stored message is known, at least.")
    ] = 24 * HOUR_MS
    message_ids_max: Annotated[
        int, Meta(ge=100_000, description="Message ids that are known, all partitions together; the oldest go first.")
    ] = 10_000_000
    request_memory_bytes: Annotated[
        int, _SIZE, Meta(ge=2**20, description="Most that requests under way may hold, all connections together.")
    ] = 512 * 2**20
    answer_memory_bytes: Annotated[
        int,
        _SIZE,
        Meta(ge=2**20, description="Most that answers not taken by slow readers may hold, all together."),
    ] = 256 * 2**20
    node_id: Annotated[int, Meta(ge=0, le=2**31 - 1, description="This broker's number.")] = 1
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Least severity that is logged.")
    ] = "info"
    log_format: Annotated[
        Literal["console", "json"], Meta(description="Log lines for people, or one JSON object a line.")
    ] = "console"


class Field(NamedTuple):
    """One row of the table, as the command line and the documentation show it."""

    name: str
    type: Any
    default: Any
    help: str
    kind: str
    """How its text is read: text, whole, truth, choice, list, duration, size or port."""
    choices: tuple[str, ...]

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper()


def _fields() -> dict[str, Field]:
    table = {}
    hints = get_type_hints(Settings, include_extras=True)
    for row in msgspec.structs.fields(Settings):
        hint = hints[row.name]
        plain, metas = hint.__origin__, hint.__metadata__
        kinds = [meta.extra["kind"] for meta in metas if meta.extra]
        choices = get_args(plain) if hasattr(plain, "__args__") and plain.__origin__ is Literal else ()
        by_type = {bool: "truth", int: "whole", str: "text"}.get(plain, "choice" if choices else "list")
        text = next(meta.description for meta in metas if meta.description)
        table[row.name] = Field(row.name, hint, row.default, text, kinds[0] if kinds else by_type, choices)
    return table


FIELDS: Mapping[str, Field] = _fields()


def load(
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    config: tuple[str, str] | None = None,
) -> Settings:
    """The settings in force.

    `flags` has the flags that were given, by field name (None counts as not given); `config` is the name and the text
    of a TOML file. Raises INVALID_SETTING that names every wrong field, its value and where it was said.
    """
    problems: list[str] = []
    merged: dict[str, Any] = {}
    given = {name: value for name, value in flags.items() if value is not None}
    sources = [
        _from_file(config, problems) if config else {},
        _from_environment(environment, problems),
        {name: (value, FIELDS[name].flag) for name, value in given.items()},
    ]
    for source in sources:
        for name, (value, where) in source.items():
            try:
                merged[name] = _read_value(FIELDS[name], value)
            except (ValueError, msgspec.ValidationError) as problem:
                problems.append(f"{name} = {value!r} ({where}): {_lowered(str(problem))}")
    if problems:
        raise PenstockError(ErrorCode.INVALID_SETTING, "\n".join(problems))
    return Settings(**merged)


def _from_environment(environment: Mapping[str, str], problems: list[str]) -> dict[str, tuple[object, str]]:
    known = {field.variable: name for name, field in FIELDS.items()}
    found: dict[str, tuple[object, str]] = {}
    for variable in sorted(environment):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in CLIENT_VARIABLES:
            continue
        if variable in known:
            found[known[variable]] = (environment[variable], f"environment variable {variable}")
        else:
            hint = _nearest(variable, [*known, *CLIENT_VARIABLES])
            problems.append(f"there is no setting for the environment variable {variable}{hint}")
    return found


def _from_file(config: tuple[str, str], problems: list[str]) -> dict[str, tuple[object, str]]:
    import tomllib  # only needed by those who have a file; the others start sooner without it

    path, text = config
    try:
        rows = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        problems.append(f"{path} is not valid TOML: {problem}")
        return {}
    found: dict[str, tuple[object, str]] = {}
    for name, value in rows.items():
        if name in FIELDS:
            found[name] = (value, f"file {path}")
        else:
            problems.append(f"there is no setting {name!r} (file {path}){_nearest(name, [*FIELDS])}")
    return found


def _read_value(field: Field, value: object) -> Any:
    """The value as its field's type, from text or from a TOML value."""
    if isinstance(value, str):
        value = _read_text(field, value)
    result = msgspec.convert(value, field.type)
    if field.kind == "list" and not (result and all(result)):
        raise ValueError("expected at least one name, and none of them empty")
    return result


def _read_text(field: Field, text: str) -> object:
    match field.kind:
        case "duration":
            return read_duration_ms(text)
        case "size":
            return read_size_bytes(text)
        case "list":
            return tuple(part.strip() for part in text.split(","))
        case "truth":
            if text.lower() not in _TRUE + _FALSE:
                raise ValueError("expected true or false")
            return text.lower() in _TRUE
        case "whole" | "port":
            if field.name == "operator_port" and text == "off":
                return -1
            try:
                return int(text)
            except ValueError:
                raise ValueError("expected a whole number") from None
        case "choice":
            if text not in field.choices:
                raise ValueError(f"expected one of {', '.join(field.choices)}")
            return text
    return text


def _nearest(name: str, known: Sequence[str]) -> str:
    import difflib  # only needed for an error message

    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(sorted(known))}"


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:].replace("`", "")
