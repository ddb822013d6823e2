"""Tests Avro decoding, with every Avro type and every framing."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.spark.values.avro_values import AvroDecoder, AvroSchema
from millstream.spark.values.options import AvroFraming

ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "DONE"]}},
        {"name": "before", "type": ["null", "State"]},
        {"name": "parts", "type": {"type": "array", "items": ["int", "long"]}},
        {"name": "marks", "type": {"type": "map", "values": "double"}},
    ],
}
ROW = {
    "id": 7,
    "name": None,
    "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
    "day": date(2026, 1, 31),
    "price": Decimal("12.50"),
    "state": "DONE",
    "before": "OPEN",
    "parts": [1, 2**40],
    "marks": {"a": 1.5},
}
SCHEMA = AvroSchema(json.dumps(ORDER))
FINGERPRINT = bytes.fromhex("c301") + SCHEMA.fingerprint


def datum(row: dict[str, Any]) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(ORDER), row)
    return stream.getvalue()


def read(value: bytes | None, framing: AvroFraming = AvroFraming.PLAIN, wanted: pa.StructType | None = None) -> Any:
    found, _ = AvroDecoder(SCHEMA, wanted or SCHEMA.type, framing).decode(pa.array([value], pa.binary()))
    return found.to_pylist()[0]


@pytest.mark.parametrize(
    ("framing", "header"),
    [
        (AvroFraming.PLAIN, b""),
        (AvroFraming.SINGLE_OBJECT, FINGERPRINT),
        (AvroFraming.CONFLUENT, b"\0\0\0\0\x05"),
    ],
)
def test_a_datum_is_decoded_with_each_framing(framing: AvroFraming, header: bytes) -> None:
    assert read(header + datum(ROW), framing) == ROW | {"marks": [("a", 1.5)]}
    assert read(None, framing) is None


def test_only_requested_fields_are_returned_in_the_requested_type() -> None:
    wanted = pa.struct([("at", pa.timestamp("us", "UTC")), ("id", pa.int64())])
    found, _ = AvroDecoder(SCHEMA, wanted, AvroFraming.PLAIN).decode(pa.array([datum(ROW)]))
    assert found.type == wanted
    assert found.to_pylist() == [{"at": ROW["at"], "id": 7}]


def test_the_fingerprint_ignores_attributes_outside_the_canonical_form() -> None:
    schema = AvroSchema('{"type": "record", "name": "R", "fields": [], "doc": "not a part of it"}')
    assert schema.fingerprint == AvroSchema('{"fields": [], "name": "R", "type": "record"}').fingerprint
    assert len(schema.fingerprint) == 8


@pytest.mark.parametrize(
    ("value", "framing", "says"),
    [
        (datum(ROW)[:-1], AvroFraming.PLAIN, "ends too early"),
        (datum(ROW) + b"x", AvroFraming.PLAIN, "1 bytes are left"),
        (b"", AvroFraming.PLAIN, "it does not match the schema"),
        (b"", AvroFraming.CONFLUENT, "begins with nothing instead of 00"),
        (b"\0\0", AvroFraming.CONFLUENT, "it does not match the schema"),
        (b"\xc3\x01" + bytes(8) + datum(ROW), AvroFraming.SINGLE_OBJECT, "begins with c3 01 00 .* instead of c3 01"),
    ],
)
def test_invalid_values_are_refused_with_a_reason(value: bytes, framing: AvroFraming, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read(value, framing)


@given(st.binary(max_size=60))
def test_random_bytes_are_decoded_or_refused(value: bytes) -> None:
    try:
        assert read(value).keys() == ROW.keys()
    except ValueError:
        pass


def record(kind: str) -> str:
    return f'{{"type": "record", "name": "R", "fields": [{{"name": "a", "type": {kind}}}]}}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not an Avro schema"),
        ('{"type": "recor"}', "not an Avro schema"),
        ('"string"', "the schema must be a record, .* not string"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "Foo"}]}', "not an Avro schema: .*Foo"),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["string", "int"]}]}',
            "a union of string, int",
        ),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "R"]}]}',
            "R is a recursive type",
        ),
        (record('{"type": "bytes", "logicalType": "decimal"}'), "precision None"),
        (record('{"type": "bytes", "logicalType": "decimal", "precision": 39}'), "39 digits is too long"),
    ],
)
def test_a_schema_that_cannot_be_mapped_to_columns_is_refused(text: str, says: str) -> None:
    with pytest.raises(MillstreamError, match=f"option valueSchema: .*{says}") as caught:
        AvroSchema(text)
    assert caught.value.code is ErrorCode.INVALID_SETTING
