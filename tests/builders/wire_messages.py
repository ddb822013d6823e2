"""Lists the Kafka APIs in the dispatch table, and generates random fields for their messages."""

from collections.abc import Callable, Container, Iterator
from typing import Any, NamedTuple
from unittest.mock import NonCallableMock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from millstream.broker.dispatch.apis import ApiDependencies, build_table
from millstream.broker.dispatch.dispatch_table import ApiRow
from millstream.model.authorization import ALLOW_ALL
from millstream.wire.messages import read_request, read_response, write_request, write_response
from millstream.wire.schema import Schema, SchemaField, load

OWN_KEYS_FROM = 1000

_BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


class Message(NamedTuple):
    """The request or the response of one API in one version."""

    name: str
    api: str
    direction: str
    version: int

    @property
    def schema(self) -> Schema:
        return load(self.name)

    def write(self, values: Any) -> bytes:
        write = write_request if self.direction == "Request" else write_response
        return bytes(write(self.api, self.version, values))

    def read(self, data: bytes | memoryview) -> Any:
        read = read_request if self.direction == "Request" else read_response
        return read(self.api, self.version, memoryview(data), 0)


def kafka_rows() -> dict[str, ApiRow]:
    """Return the rows of Kafka's own APIs in the dispatch table, by name."""
    return {api: row for api, row in served_rows().items() if row.key < OWN_KEYS_FROM}


def served_rows() -> dict[str, ApiRow]:
    """Return all rows of the dispatch table, by name."""
    # The rows only reference their handlers, so the handlers need no real dependencies.
    behind = NonCallableMock()
    served = ApiDependencies(
        behind,
        behind,
        behind,
        behind,
        behind,
        behind,
        behind,
        behind,
        version="1",
        iterators=behind,
        group_configs=behind,
        authorizer=ALLOW_ALL,
    )
    return {row.api: row for row in build_table(served).rows.values()}


def messages(row: ApiRow) -> Iterator[Message]:
    """Yield request and response in each version that the row serves."""
    for version in range(row.first, row.last + 1):
        for direction in ("Request", "Response"):
            yield Message(row.api + direction, row.api, direction, version)


def some(examples: int) -> settings:
    """Return settings for few, repeatable examples without shrinking, because messages are small already."""
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def structs(
    fields: tuple[SchemaField, ...],
    version: int,
    *,
    without: Container[str] = (),
    is_small: Callable[[SchemaField], bool] = lambda _: False,
) -> st.SearchStrategy[dict[str, Any]]:
    """Generate values for each field of this version except those in `without`; `is_small` fields are at most 100."""

    def values_of(field: SchemaField) -> st.SearchStrategy[Any]:
        one: st.SearchStrategy[Any]
        if field.kind in _BITS:
            limit = 1 << _BITS[field.kind]
            one = st.integers(0, 100) if is_small(field) else st.integers(-limit, limit - 1)
        elif field.kind == "struct":
            one = structs(field.fields, version, without=without, is_small=is_small)
        else:
            one = {
                "bool": st.booleans(),
                "uint16": st.integers(0, 65_535),
                "float64": st.floats(allow_nan=False),
                "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
                "uuid": st.uuids(),
                "bytes": st.binary(max_size=200),
                "records": st.binary(max_size=200),
            }[field.kind]
        if field.is_array:
            one = st.lists(one, max_size=3)
        return st.none() | one if version in field.nullable else one

    return st.fixed_dictionaries(
        {field.name: values_of(field) for field in fields if version in field.versions and field.name not in without}
    )
