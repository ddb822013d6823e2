"""Tests that the codec matches kafka-python's bytes in each served version of each Kafka API."""

import importlib
from typing import Any

import pytest
from hypothesis import given, note

from builders.wire_messages import Message, kafka_rows, messages, some, structs
from millstream.broker.dispatch.dispatch_table import ApiRow
from millstream.wire.malformed import MalformedMessageError
from millstream.wire.messages import read_request
from millstream.wire.schema import SchemaField

ROWS = kafka_rows()
NOT_IN_KAFKA_PYTHON = {"ConsumerGroupHeartbeat", "ConsumerGroupDescribe"}
"""Only test_kio.py checks these."""
RENAMED = {"topic_authorized_operations", "cluster_authorized_operations", "authorized_operations"}
"""kafka-python gives these another name and makes them a set of bits: they keep their default here."""

PACKAGES = [importlib.import_module(f"kafka.protocol.{name}") for name in ("metadata", "producer", "consumer", "admin")]


def kafka_class(message: Message) -> Any:
    """Return kafka-python's class for a message. Raises StopIteration if it has none."""
    return next(getattr(package, message.name) for package in PACKAGES if hasattr(package, message.name))


def kafka_object(make: Any, rows: Any, values: dict[str, Any], version: int) -> Any:
    """Return the same values as kafka-python's objects."""
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
    """Return the decoded fields that this version has, with buffers as bytes."""
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


def each_of(rows: dict[str, ApiRow]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", rows.values(), ids=rows)


@each_of({api: row for api, row in ROWS.items() if api not in NOT_IN_KAFKA_PYTHON})
def test_messages_match_kafka_python_and_are_read_back_as_written(row: ApiRow) -> None:
    def check(message: Message) -> None:
        fields = message.schema.fields
        oracle = kafka_class(message)

        @some(15)
        @given(structs(fields, message.version, without=RENAMED))
        def check_one(values: dict[str, Any]) -> None:
            note(str(message))
            data = message.write(values)
            assert data == bytes(kafka_object(oracle, oracle._struct.fields, values, message.version).encode())
            assert without_defaults(message.read(data), fields, message.version) == values

        check_one()

    for message in messages(row):
        check(message)


@each_of(ROWS)
def test_truncated_messages_and_responses_with_extra_bytes_are_refused(row: ApiRow) -> None:
    def check(message: Message) -> None:
        @some(3)
        @given(structs(message.schema.fields, message.version))
        def check_one(values: dict[str, Any]) -> None:
            note(str(message))
            data = message.write(values)
            refused = [data[:size] for size in range(len(data))]
            if message.direction == "Response":
                refused.append(data + b"\0")
            for bad in refused:
                with pytest.raises(MalformedMessageError):
                    message.read(bad)

        check_one()

    for message in messages(row):
        check(message)


def test_extra_bytes_of_librdkafkas_metadata_request_are_ignored() -> None:
    """librdkafka leaves three bytes of a length that became shorter. Kafka ignores them too."""
    fields = read_request("Metadata", 13, memoryview(bytes.fromhex("00000000010000")), 0)
    assert fields["topics"] is None
