"""Tests that keys map to the same partitions as in the Java client and in compatible clients."""

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from millstream.sdk.producing.row_partitioning import murmur2, partition_for

KEYS = [
    b"",
    b"a",
    b"ab",
    b"abc",
    b"abcd",
    b"\xff\xfe\xfd\xfc\xfb",
]


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_matches_the_java_clients_test_vectors(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32


@given(st.binary(max_size=200))
def test_the_hash_agrees_with_other_clients(key: bytes) -> None:
    assert murmur2(key) == kafka_python_murmur2(key) % 2**32 == aiokafka_murmur2(key) % 2**32


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("partitions", [1, 2, 7, 1000])
def test_a_key_maps_to_the_same_partition_as_in_kafka_python(key: bytes, partitions: int) -> None:
    chosen = partition_for(key, partitions)
    assert 0 <= chosen < partitions
    assert chosen == (kafka_python_murmur2(key) & 0x7FFFFFFF) % partitions
