"""Compares the codec with those of other clients, in both directions and byte by byte."""

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from builders.record_lists import RecordList, bounded, record_lists
from millstream.records.batch import decode_batch
from millstream.records.compression import Compression
from millstream.records.header import CRC_START, check, read_header
from millstream.records.record import Record

pytestmark = pytest.mark.usefixtures("codec")

# aiokafka compresses with the same library as we do; kafka-python with others.
ORACLES = [
    pytest.param(batch, builder, compression, id=f"{name}-{compression}")
    for name, batch, builder in (
        ("aiokafka", AiokafkaBatch, AiokafkaBuilder),
        ("kafka-python", KafkaPythonBatch, KafkaPythonBuilder),
    )
    for compression in ("none", "gzip", "snappy", "lz4", "zstd")
]
PRODUCER: dict[str, Any] = {"producer_id": 77, "producer_epoch": 3, "base_sequence": 12}


def built(builder_class: Any, made: RecordList, compression: str) -> bytes:
    builder = builder_class(
        magic=2,
        compression_type=Compression.named(compression).value,
        is_transactional=True,
        batch_size=1 << 30,
        **PRODUCER,
    )
    for key, value, headers, timestamp, delta in zip(*made, strict=True):
        assert builder.append(delta, timestamp, key, value, headers) is not None
    return bytes(builder.build())


def read(batch_class: Any, encoded: bytes) -> list[Record]:
    batch = batch_class(encoded)
    assert batch.validate_crc()
    return [
        Record(each.offset, each.timestamp, each.key, each.value, tuple(map(tuple, each.headers))) for each in batch
    ]


@pytest.mark.parametrize(("batch_class", "builder_class", "compression"), ORACLES)
@given(made=record_lists())
@bounded(15)
def test_other_codecs_decode_our_batches(
    batch_class: Any, builder_class: Any, compression: str, made: RecordList
) -> None:
    encoded = bytes(made.encode(compression=compression, base_offset=40, transactional=True, **PRODUCER))
    assert read(batch_class, encoded) == made.records(40)
    theirs, ours = batch_class(encoded), read_header(encoded)
    assert theirs.next_offset == ours.next_offset
    assert theirs.is_transactional == ours.is_transactional
    assert theirs.is_control_batch == ours.is_control
    assert theirs.compression_type == ours.compression
    assert (theirs.first_timestamp, theirs.max_timestamp) == (ours.base_timestamp, ours.max_timestamp)
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (77, 3, 12)


@pytest.mark.parametrize(("batch_class", "builder_class", "compression"), ORACLES)
@given(made=record_lists())
@bounded(15)
def test_batches_encoded_by_other_clients_are_decoded(
    batch_class: Any, builder_class: Any, compression: str, made: RecordList
) -> None:
    encoded = built(builder_class, made, compression)
    header = read_header(encoded)
    check(encoded, 0, header)
    assert decode_batch(encoded) == made.records()
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 12)
    assert header.is_transactional
    assert header.last_offset_delta == made.offset_deltas[-1]
    assert header.record_count == len(made.values)


@pytest.mark.parametrize("builder_class", [AiokafkaBuilder, KafkaPythonBuilder])
@given(made=record_lists())
@bounded(40)
def test_our_batches_equal_those_of_other_codecs_byte_by_byte(builder_class: Any, made: RecordList) -> None:
    ours = made.encode(transactional=True, **PRODUCER)
    # What the checksum covers; they differ from us, and from each other, in the epoch that the broker overwrites.
    assert ours[CRC_START:] == built(builder_class, made, "none")[CRC_START:]
