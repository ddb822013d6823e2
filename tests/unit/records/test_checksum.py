"""The checksum of batches and files."""

import crc32c as package

from millstream.records.checksum import crc32c


def test_the_checksum_is_the_one_that_kafka_and_iscsi_use() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_the_compiled_part_counts_as_its_package_does_also_from_a_checksum_so_far() -> None:
    assert crc32c(b"6789", crc32c(b"12345")) == package.crc32c(b"123456789")
