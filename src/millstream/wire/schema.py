"""Loads message schemas from JSON: for each field its name, type, versions, nullable versions, tag and default.

Kafka's schemas are those that kafka-python ships. Millstream's are in the `schemas` folder beside this file, which has
precedence. Only the schema files of kafka-python are read. An import of the package, with its clients, sockets and
statistics, would cost a broker 130 ms at start and 12 MB of memory.
"""

import importlib.util
import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from msgspec import Struct

_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
_WORD = re.compile(r"(?<!^)(?=[A-Z])")
_INTEGERS = frozenset({"int8", "int16", "uint16", "int32", "uint32", "int64"})
_OWN = Path(__file__).parent / "schemas"
_EMBEDDED = ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment")
"""Schemas of Kafka's that are part of other messages."""


class VersionSpan(Struct, frozen=True):
    """A range of versions, both ends included. It is empty if first > last."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    @classmethod
    def parse(cls, text: str | None) -> "VersionSpan":
        if not text or text == "none":
            return NEVER
        if text.endswith("+"):
            return cls(int(text[:-1]), 32_767)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))


NEVER = VersionSpan(0, -1)


class SchemaField(Struct, frozen=True):
    """One field. `kind` is the type of the value, or of an element of an array. A structure has `fields`."""

    name: str
    kind: str
    is_array: bool
    versions: VersionSpan
    nullable: VersionSpan
    tag: int | None
    tagged: VersionSpan
    default: Any
    fields: tuple["SchemaField", ...]

    def is_tagged(self, version: int) -> bool:
        return self.tag is not None and version in self.tagged


class Schema(Struct, frozen=True):
    """One message: its API key (-1 if it is not an API), its versions, its flexible versions and its fields.

    Flexible versions have compact lengths and tags.
    """

    name: str
    key: int
    versions: VersionSpan
    flexible: VersionSpan
    fields: tuple[SchemaField, ...]


@cache
def load(name: str) -> Schema:
    """Return the schema of a message such as "MetadataRequest". Raises FileNotFoundError if it does not exist."""
    rows = json.loads(_COMMENT.sub("", _text(name)))
    shared = {struct["name"]: struct["fields"] for struct in rows.get("commonStructs", ())}
    return Schema(
        name=name,
        key=int(rows.get("apiKey", -1)),
        versions=VersionSpan.parse(rows["validVersions"]),
        flexible=VersionSpan.parse(rows["flexibleVersions"]),
        fields=tuple(_field(row, shared) for row in rows["fields"]),
    )


def read_schemas(apis: Iterable[str]) -> None:
    """Read the schema files of these APIs, of records and of consumers' data, so that no later request opens a file.

    A process may have no file descriptor left when a client uses an API for the first time. Parsing takes several times
    as long as reading, so each schema is parsed at its first use.
    """
    names = [f"{api}{kind}" for api in apis for kind in ("Request", "Response")]
    for name in (*names, *_EMBEDDED, *(path.stem for path in _OWN.glob("*.json"))):
        _text(name)


@cache
def _text(name: str) -> str:
    own = _OWN / f"{name}.json"
    if own.exists():
        return own.read_text()
    return (_kafka_schemas() / f"{name}.json").read_text()


@cache
def _kafka_schemas() -> Path:
    spec = importlib.util.find_spec("kafka")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("Kafka's message schemas are missing; install kafka-python")
    return Path(spec.submodule_search_locations[0]) / "protocol" / "schemas" / "resources"


def _field(row: dict[str, Any], shared: dict[str, list[dict[str, Any]]]) -> SchemaField:
    kind = row["type"]
    is_array = kind.startswith("[]")
    kind = kind.removeprefix("[]")
    inner = row.get("fields") or shared.get(kind) or ()
    fields = tuple(_field(each, shared) for each in inner)
    if fields:
        kind = "struct"
    return SchemaField(
        name=_WORD.sub("_", row["name"]).lower(),
        kind=kind,
        is_array=is_array,
        versions=VersionSpan.parse(row["versions"]),
        nullable=VersionSpan.parse(row.get("nullableVersions")),
        tag=row.get("tag"),
        tagged=VersionSpan.parse(row.get("taggedVersions")),
        default=_default(row.get("default"), kind, is_array),
        fields=fields,
    )


def _default(text: Any, kind: str, is_array: bool) -> Any:
    if text == "null":
        return None
    if is_array:
        return ()
    if kind in _INTEGERS:
        return int(str(text), 0) if text not in (None, "") else 0
    if kind == "bool":
        return str(text).lower() == "true"
    if kind == "float64":
        return float(text or 0)
    if kind == "string":
        return text or ""
    if kind == "uuid":
        return UUID(int=0)
    return {} if kind == "struct" else b""
