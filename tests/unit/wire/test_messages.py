"""The schema-driven codec against two independent ones: kafka-python's, byte for byte, and kio's."""

import importlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.wire.malformed import MalformedMessageError
from millstream.wire.messages import read_request, read_response, write_request, write_response
from millstream.wire.schema import Schema, SchemaField, load

SERVED = {
    "ApiVersions": ("metadata", 0, 4),
    "Metadata": ("metadata", 0, 13),
    "FindCoordinator": ("metadata", 0, 6),
    "Produce": ("producer", 3, 13),
    "Fetch": ("consumer", 4, 18),
    "ListOffsets": ("consumer", 1, 11),
    "OffsetForLeaderEpoch": ("consumer", 2, 4),
    "InitProducerId": ("producer", 0, 6),
    "CreateTopics": ("admin", 2, 7),
    "DeleteTopics": ("admin", 1, 6),
    "OffsetCommit": ("consumer", 2, 10),
    "OffsetFetch": ("consumer", 1, 10),
    "JoinGroup": ("consumer", 0, 9),
    "SyncGroup": ("consumer", 0, 5),
    "Heartbeat": ("consumer", 0, 4),
    "LeaveGroup": ("consumer", 0, 5),
    "DescribeGroups": ("admin", 0, 6),
    "ListGroups": ("admin", 0, 5),
    "DeleteGroups": ("admin", 0, 2),
    "OffsetDelete": ("consumer", 0, 0),
}
EVERY_VERSION = [
    (api, direction, version)
    for api, (_, first, last) in SERVED.items()
    for direction in ("Request", "Response")
    for version in range(first, last + 1)
]
RENAMED = {"topic_authorized_operations", "cluster_authorized_operations", "authorized_operations"}
"""kafka-python gives these another name and makes them a set of bits: they keep their default here."""

_BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def values_of(field: SchemaField, version: int) -> st.SearchStrategy[Any]:
    one: st.SearchStrategy[Any]
    if field.kind in _BITS:
        limit = 1 << _BITS[field.kind]
        one = st.integers(-limit, limit - 1)
    elif field.kind == "struct":
        one = structs(field.fields, version)
    else:
        one = {
            "bool": st.booleans(),
            "uint16": st.integers(0, 65_535),
            "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
            "uuid": st.uuids(),
            "bytes": st.binary(max_size=200),
            "records": st.binary(max_size=200),
        }[field.kind]
    if field.is_array:
        one = st.lists(one, max_size=3)
    if version in field.nullable:
        one = st.none() | one
    return one


def structs(fields: tuple[SchemaField, ...], version: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            field.name: values_of(field, version)
            for field in fields
            if version in field.versions and field.name not in RENAMED
        }
    )


def kafka_class(api: str, direction: str) -> Any:
    return getattr(importlib.import_module(f"kafka.protocol.{SERVED[api][0]}"), api + direction)


def kafka_object(make: Any, rows: Any, values: dict[str, Any], version: int) -> Any:
    """The same values as kafka-python's own objects."""
    built = {}
    for name, row in rows.items():
        if name not in values:
            continue
        value = values[name]
        if value is not None and row.is_struct_array():
            value = [kafka_object(row.data_class, row.fields, each, version) for each in value]
        elif value is not None and row.is_struct():
            value = kafka_object(row.data_class, row.fields, value, version)
        built[name] = value
    return make(version=version, **built)


def without_defaults(values: dict[str, Any], schema_fields: tuple[SchemaField, ...], version: int) -> dict[str, Any]:
    """What was read, with buffers as bytes and only the fields this version has."""
    kept = {}
    for field in schema_fields:
        if version not in field.versions or field.name in RENAMED:
            continue
        value = values[field.name]
        if isinstance(value, memoryview):
            value = bytes(value)
        elif field.kind == "struct" and value:
            if field.is_array:
                value = [without_defaults(each, field.fields, version) for each in value]
            else:
                value = without_defaults(value, field.fields, version)
        kept[field.name] = list(value) if isinstance(value, tuple) else value
    return kept


def read_and_write(api: str, direction: str) -> tuple[Any, Any, Schema]:
    if direction == "Request":
        return read_request, write_request, load(api + direction)
    return read_response, write_response, load(api + direction)


@pytest.mark.parametrize(("api", "direction", "version"), EVERY_VERSION)
def test_bytes_are_those_of_kafka_python_and_are_read_back_as_written(api: str, direction: str, version: int) -> None:
    read, write, schema = read_and_write(api, direction)
    oracle = kafka_class(api, direction)

    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(structs(schema.fields, version))
    def check(values: dict[str, Any]) -> None:
        data = write(api, version, values)
        assert data == bytes(kafka_object(oracle, oracle._struct.fields, values, version).encode())
        assert without_defaults(read(api, version, memoryview(data), 0), schema.fields, version) == values

    check()


@pytest.mark.parametrize(("api", "direction", "version"), EVERY_VERSION)
def test_a_message_cut_short_and_an_answer_with_bytes_too_many_are_refused(
    api: str, direction: str, version: int
) -> None:
    read, write, schema = read_and_write(api, direction)

    @settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(structs(schema.fields, version))
    def check(values: dict[str, Any]) -> None:
        data = write(api, version, values)
        for size in range(len(data)):
            with pytest.raises(MalformedMessageError):
                read(api, version, memoryview(data)[:size], 0)
        if direction == "Response":
            with pytest.raises(MalformedMessageError):
                read(api, version, memoryview(data + b"\0"), 0)

    check()


def test_all_topics_as_librdkafka_asks_for_them_are_understood() -> None:
    """It leaves three bytes of a length that became shorter; Kafka passes over them, and so must we."""
    fields = read_request("Metadata", 13, memoryview(bytes.fromhex("00000000010000")), 0)
    assert fields["topics"] is None
