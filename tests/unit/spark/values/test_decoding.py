"""Tests bad values among good ones."""

import pyarrow as pa
import pytest

from builders.value_batches import value_batch
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.spark.values.decoding import decode
from millstream.spark.values.json_values import JsonDecoder
from millstream.spark.values.options import BadValues

DECODER = JsonDecoder(pa.struct([("a", pa.int64())]))
VALUES = [b'{"a": 1}', b"{", None, b'{"a": 2}', b'{"a": "x"}', b'{"a": 3}']


def test_the_first_bad_value_is_reported_with_its_offset() -> None:
    with pytest.raises(
        MillstreamError, match=r"orders-3 at offset 101 cannot be decoded: .*; set badValues=null"
    ) as caught:
        decode(DECODER, value_batch(VALUES), BadValues.FAIL)
    assert caught.value.code is ErrorCode.UNDECODABLE_VALUE


def test_bad_values_become_null_and_the_others_are_decoded() -> None:
    found = decode(DECODER, value_batch(VALUES), BadValues.NULL)
    assert found.fields.to_pylist() == [{"a": 1}, None, None, {"a": 2}, None, {"a": 3}]
    assert found.of is None


def test_an_empty_batch_decodes_to_no_rows() -> None:
    assert decode(DECODER, value_batch([]), BadValues.FAIL).fields.type == DECODER.type
