"""Compares the format byte by byte with batches that were worked out by hand."""

import pytest

from millstream.records.batch import decode_batch, encode_batch
from millstream.records.record import Record

pytestmark = pytest.mark.usefixtures("codec")

TWO_RECORDS = [
    ("00000000 00000064", "base offset 100"),
    ("00000059", "batch length: 49 of the header and 40 of the records"),
    ("00000007", "leader epoch 7"),
    ("02", "magic"),
    ("f649eb0a", "CRC-32C of all that follows"),
    ("0010", "attributes: transactional, not compressed"),
    ("00000001", "last offset delta 1"),
    ("0000018b cfe56800", "base timestamp 1700000000000"),
    ("0000018b cfe56800", "max timestamp 1700000000000: the second record is older"),
    ("00000000 000003e9", "producer id 1001"),
    ("0002", "producer epoch 2"),
    ("0000000f", "base sequence 15"),
    ("00000002", "two records"),
    # The first record.
    ("2a", "length 21"),
    ("00", "attributes"),
    ("00", "timestamp delta 0"),
    ("00", "offset delta 0"),
    ("06", "key length 3"),
    ("6b6579", "key 'key'"),
    ("0a", "value length 5"),
    ("76616c7565", "value 'value'"),
    ("04", "two headers"),
    ("04", "header key length 2"),
    ("c3bc", "header key 'ü'"),
    ("02", "header value length 1"),
    ("ff", "header value"),
    ("00", "header key length 0"),
    ("01", "header value null"),
    # The second record.
    ("22", "length 17"),
    ("00", "attributes"),
    ("c701", "timestamp delta -100"),
    ("02", "offset delta 1"),
    ("01", "key null"),
    ("14", "value length 10"),
    ("30313233343536373839", "value '0123456789'"),
    ("00", "no headers"),
]

RECORDS = [
    Record(100, 1_700_000_000_000, b"key", b"value", (("ü", b"\xff"), ("", None))),
    Record(101, 1_699_999_999_900, None, b"0123456789", ()),
]


def golden() -> bytes:
    return bytes.fromhex("".join(digits for digits, _ in TWO_RECORDS))


def test_encoding_gives_the_expected_bytes() -> None:
    encoded = encode_batch(
        [record.value for record in RECORDS],
        keys=[record.key for record in RECORDS],
        headers=[record.headers for record in RECORDS],
        timestamps=[record.timestamp for record in RECORDS],
        base_offset=100,
        leader_epoch=7,
        producer_id=1001,
        producer_epoch=2,
        base_sequence=15,
        transactional=True,
    )
    assert encoded.hex() == golden().hex()


def test_decoding_the_expected_bytes_gives_the_records() -> None:
    assert decode_batch(golden()) == RECORDS
