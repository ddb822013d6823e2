"""Tests that keys map to the partitions in which Kafka's tools look for them."""

import pytest

from millstream.coordination.key_hash import partition_of


@pytest.mark.parametrize(
    ("key", "hashed"),
    [("", 0), ("a", 97), ("readers", 1_080_410_128), ("polygenelubricants", 0), ("grüppe-🙂", 1_039_948_098)],
)
def test_a_key_belongs_to_the_partition_of_its_java_hash(key: str, hashed: int) -> None:
    assert partition_of(key, 2**31) == hashed
    assert partition_of(key, 50) == hashed % 50
