"""Tests the checksum of batches and files."""

import crc32c as package

from millstream.records.checksum import crc32c


def test_the_checksum_is_crc32c_as_in_kafka_and_iscsi() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_the_compiled_checksum_equals_that_of_its_package() -> None:
    assert crc32c(b"6789", crc32c(b"12345")) == package.crc32c(b"123456789")
