"""Checks that every client can read compressed batches, and that decompression is limited."""

import gzip
import struct
import subprocess
import sys
import zlib

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.record_lists import bounded
from millstream.records.compression import LEVELS, Compression, compress, decompress
from millstream.records.header import CorruptBatch

PACKED = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
MIB = 1024 * 1024

JAVA_SNAPPY = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def snappy_block(data: bytes) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(data))
    return struct.pack(">i", len(block)) + block


def zstd_bomb(size_bytes: int) -> bytes:
    """A frame of blocks that say "128 KiB of zeros" in four bytes."""
    block_bytes = 128 * 1024
    count = size_bytes // block_bytes
    repeat = (block_bytes << 3) | (1 << 1)
    blocks = [(repeat | (number == count - 1)).to_bytes(3, "little") + b"\x00" for number in range(count)]
    return b"\x28\xb5\x2f\xfd" + b"\x00\x38" + b"".join(blocks)


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("size", [0, 1, MIB // 16, MIB // 16 + 1, MIB // 4 + 1, MIB, MIB + 1, 4 * MIB, 4 * MIB + 1])
@pytest.mark.parametrize("pattern", [b"\x00", bytes(range(256)) + b"millstream"])
def test_compressed_data_is_decompressed_unchanged(compression: Compression, size: int, pattern: bytes) -> None:
    data = (pattern * (size // len(pattern) + 1))[:size]
    packed = compress(compression, memoryview(data))
    assert decompress(compression, memoryview(packed), size) == data


@pytest.mark.parametrize("compression", list(Compression))
def test_the_decompression_limit_is_exact(compression: Compression) -> None:
    packed = compress(compression, bytes(MIB))
    assert len(decompress(compression, packed, MIB)) == MIB
    with pytest.raises(CorruptBatch, match="the limit of 1048575 bytes"):
        decompress(compression, packed, MIB - 1)


@pytest.mark.parametrize("compression", PACKED)
@given(data=st.data())
@bounded(60)
def test_damaged_compressed_data_raises_only_corrupt_batch(compression: Compression, data: st.DataObject) -> None:
    packed = bytearray(compress(compression, b"some text, some more text, and some more " * 20))
    for position in data.draw(st.lists(st.integers(0, len(packed) - 1), min_size=1, max_size=4)):
        packed[position] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(packed)))
    try:
        assert len(decompress(compression, bytes(packed[:cut]), 10_000)) <= 10_000
    except CorruptBatch:
        pass


@pytest.mark.parametrize("compression", PACKED)
def test_truncated_compressed_data_is_a_corrupt_batch(compression: Compression) -> None:
    packed = compress(compression, bytes(range(256)) * 4)
    for size in range(1, len(packed)):
        if compression is Compression.SNAPPY and size == len(JAVA_SNAPPY):
            continue  # A framed stream without blocks is whole, and empty.
        with pytest.raises(CorruptBatch):
            decompress(compression, packed[:size], MIB)


def test_gzip_of_several_members_is_read() -> None:
    packed = gzip.compress(b"one, ") + gzip.compress(b"two")
    assert decompress(Compression.GZIP, packed, 100) == b"one, two"


@pytest.mark.parametrize("level", [None, *LEVELS["gzip"]])
@pytest.mark.parametrize("data", [b"", b"one record", bytes(range(256)) * 5_000], ids=["nothing", "little", "much"])
def test_gzip_is_written_as_one_member_with_the_plain_header(data: bytes, level: int | None) -> None:
    packed = bytes(compress(Compression.GZIP, memoryview(data), level))
    assert packed[:8] == b"\x1f\x8b\x08" + bytes(5)  # Deflate; no name, no time, nothing else that is optional.
    member = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    assert member.decompress(packed) == data
    assert member.eof
    assert member.unused_data == b""


def test_lz4_blocks_are_independent_as_java_requires() -> None:
    packed = bytes(compress(Compression.LZ4, bytes(200_000)))
    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert packed[4] & 0x20


def test_snappy_is_written_in_the_framing_of_java() -> None:
    packed = bytes(compress(Compression.SNAPPY, b"a" * (MIB + 40_000)))
    assert packed == JAVA_SNAPPY + snappy_block(b"a" * MIB) + snappy_block(b"a" * 40_000)


@pytest.mark.parametrize(
    ("packed", "expected"),
    [
        (bytes(cramjam.snappy.compress_raw(b"raw, as librdkafka writes it")), b"raw, as librdkafka writes it"),
        (JAVA_SNAPPY, b""),
        (JAVA_SNAPPY + snappy_block(b"one, ") + JAVA_SNAPPY + snappy_block(b"two"), b"one, two"),
        (JAVA_SNAPPY[:8] + struct.pack(">ii", 2, 1) + snappy_block(b"a later version"), b"a later version"),
    ],
    ids=["raw", "empty", "streams in a row", "version 2"],
)
def test_snappy_is_read_in_all_framings_of_clients(packed: bytes, expected: bytes) -> None:
    assert decompress(Compression.SNAPPY, packed, 100) == expected


@pytest.mark.parametrize(
    ("packed", "complaint"),
    [
        (b"", "snappy"),
        (b"\xff\xff\xff\xff\x0f", "an impossible size of 4294967295 bytes"),
        (b"\xff" * 12, "damaged"),
        (JAVA_SNAPPY[:12], "incomplete or invalid"),
        (JAVA_SNAPPY + b"\x00\x00", "truncated within a block size"),
        (JAVA_SNAPPY + struct.pack(">i", -1), "has the size -1"),
        (JAVA_SNAPPY + struct.pack(">i", 0), "has the size 0"),
        (JAVA_SNAPPY + struct.pack(">i", 2**31 - 1) + b"abc", "2147483647, but 3 bytes are left"),
        (JAVA_SNAPPY + snappy_block(b"whole")[:-1], "bytes are left"),
        (JAVA_SNAPPY + snappy_block(b"whole") + JAVA_SNAPPY[:5], "incomplete or invalid"),
        (
            JAVA_SNAPPY + snappy_block(b"whole") + b"\x82SNAKES" + JAVA_SNAPPY[7:],
            "incomplete or invalid",
        ),
    ],
    ids=[
        "nothing",
        "room for 4 GiB",
        "a length without end",
        "half a header",
        "half a size",
        "a negative size",
        "an empty block",
        "a size beyond the end",
        "half a block",
        "half a second header",
        "another second header",
    ],
)
def test_snappy_with_invalid_block_sizes_is_corrupt(packed: bytes, complaint: str) -> None:
    with pytest.raises(CorruptBatch, match=complaint):
        decompress(Compression.SNAPPY, packed, MIB)


@pytest.mark.parametrize(("name", "level"), [("gzip", 1), ("gzip", 9), ("lz4", 12), ("zstd", -5), ("zstd", 19)])
def test_the_compression_level_changes_the_output(name: str, level: int) -> None:
    compression = Compression.named(name)
    data = b"".join(b"%d," % number for number in range(20_000))
    packed = compress(compression, data, level)
    assert decompress(compression, packed, MIB) == data
    assert bytes(packed) != bytes(compress(compression, data))


@pytest.mark.parametrize(
    ("name", "level", "complaint"),
    [("gzip", 0, "1 to 9"), ("lz4", 18, "1 to 17"), ("zstd", 23, "to 22"), ("snappy", 1, "no compression levels")],
)
def test_unknown_compression_levels_are_refused(name: str, level: int, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        compress(Compression.named(name), b"data", level)


# In a process of its own, since what the others of this one need would hide what decompression needs.
_MEASURE = """
import resource, sys
from millstream.records.compression import Compression, decompress
from millstream.records.header import CorruptBatch

compression, limit = Compression.named(sys.argv[1]), int(sys.argv[2])
bomb = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(compression, bomb, limit)
except CorruptBatch as problem:
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024, problem)
"""


@pytest.mark.parametrize(
    ("compression", "bomb"),
    [
        (Compression.GZIP, gzip.compress(bytes(MIB)) * 1024),
        (Compression.SNAPPY, JAVA_SNAPPY + snappy_block(bytes(MIB)) * 128),
        (Compression.LZ4, bytes(cramjam.lz4.compress(bytes(MIB))) * 1024),
        (Compression.ZSTD, zstd_bomb(1024 * MIB)),
    ],
    ids=["gzip", "snappy", "lz4", "zstd"],
)
def test_a_decompression_bomb_stops_at_the_limit_without_extra_memory(compression: Compression, bomb: bytes) -> None:
    limit = 8 * MIB
    measured = subprocess.run(
        [sys.executable, "-c", _MEASURE, compression.name.lower(), str(limit)],
        input=bomb,
        capture_output=True,
        check=True,
        timeout=100,
    ).stdout.decode()
    grown, _, problem = measured.partition(" ")
    assert f"the limit of {limit} bytes" in problem
    # The limit, what the allocator keeps of smaller attempts, and what the libraries need for themselves.
    assert int(grown) < 3 * limit
