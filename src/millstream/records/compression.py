"""Compresses the records of a batch, and decompresses them within a size limit.

All clients can read the output: standard gzip and zstd, LZ4 in frames of independent blocks (Java rejects linked ones),
and Snappy in the framing of Java's library. Other clients and this module read both that framing and raw Snappy:

====== ======== ====================================================================
at     bytes    Java's Snappy framing
====== ======== ====================================================================
0      8        82 "SNAPPY" 00
8      4 + 4    version and the oldest version that can read it, both 1
16     4        size of the compressed block that follows, then the block, and so on;
                the first eight bytes again in place of a size begin a further stream
====== ======== ====================================================================

The uncompressed size is not known from a batch in a trustworthy form. So the output goes into a buffer of a likely
size, and the decompressor stops when it is full. Only then the buffer grows, up to the caller's limit. A decompression
bomb costs no more memory than the limit (zstd also reserves a window of at most 128 MiB), and no more time than filling
it a few times.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, Self

import cramjam

from millstream.records.header import Bytes, CorruptBatch, OversizedBatch

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 1024 * 1024
"""Java's blocks have 32 KiB. Each block releases the interpreter lock, and may wait for it afterwards."""
_XERIAL_NEXT_STREAM = struct.unpack(">i", _XERIAL_MAGIC[:4])[0]
_SNAPPY_RATIO_MAX = 64
"""Three bytes of Snappy expand to at most 64. A block that claims more is invalid and gets no memory."""

_size = struct.Struct(">i")

_LZ4_HEADERS = {
    64 * 1024: bytes.fromhex("04224d18 60 40 82"),
    256 * 1024: bytes.fromhex("04224d18 60 50 fb"),
    1024 * 1024: bytes.fromhex("04224d18 60 60 51"),
    4096 * 1024: bytes.fromhex("04224d18 60 70 73"),
}
"""Frame headers by maximum block size: magic, flags (independent blocks, no checksums, because a batch has one), block
size, and the checksum of these two."""
_LZ4_UNCOMPRESSED = 1 << 31
_LZ4_SLOW_LEVEL_MIN = 3
_LZ4_SLOW_PIECE_BYTES = 64 * 1024
_lz4_size = struct.Struct("<I")

_FIRST_BYTES = 64 * 1024
_FIRST_RATIO = 4
_GROWTH = 4
_OUTPUT_FULL = "failed to write whole buffer"
"""cramjam's error text when the output buffer is too small. Other texts mean damaged input."""

LEVELS = {"gzip": range(1, 10), "lz4": range(1, 18), "zstd": range(-131072, 23)}
"""The levels that Kafka allows; Snappy has none."""

_DEFAULT_LEVELS = {"gzip": 6, "snappy": 0, "lz4": 1, "zstd": 3}
_ZLIB_LEVEL_MIN = 5
"""Lowest level at which zlib is used: from here it is faster than cramjam for most batches and compresses as well."""

_GZIP_WINDOW_BITS = 16 + zlib.MAX_WBITS
"""The largest window. Adding 16 makes zlib write gzip's header and checksum."""


class Compression(IntEnum):
    """The compression of a batch. The value is its number in the batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def named(cls, name: str) -> Self:
        """Return the compression with this name. The ValueError lists the accepted names."""
        try:
            return cls[name.upper()]
        except KeyError:
            known = ", ".join(each.name.lower() for each in cls)
            raise ValueError(f"unknown compression {name!r} (use one of {known})") from None


def compress(compression: Compression, data: Bytes, level: int | None = None) -> Bytes:
    """Compress `data`. Raise ValueError if the compression does not support the level."""
    if compression is Compression.NONE:
        return data
    level = _checked_level(compression.name.lower(), level)
    if compression is Compression.SNAPPY:
        return _compress_snappy(memoryview(data))
    if compression is Compression.GZIP and level >= _ZLIB_LEVEL_MIN:
        return zlib.compress(data, level, wbits=_GZIP_WINDOW_BITS)
    if compression is Compression.GZIP:
        packed = cramjam.gzip.compress(data, level)
    elif compression is Compression.ZSTD:
        packed = cramjam.zstd.compress(data, level)
    elif level < _LZ4_SLOW_LEVEL_MIN:
        return _compress_lz4(memoryview(data))
    else:
        return _compress_lz4_slowly(memoryview(data), level)
    return memoryview(packed)


def decompress(compression: Compression, data: Bytes, limit_bytes: int) -> Bytes:
    """Decompress `data`. Raise CorruptBatch if it is damaged, or larger than `limit_bytes` when decompressed."""
    if compression is Compression.NONE:
        if len(data) > limit_bytes:
            raise _too_large(limit_bytes)
        return data
    try:
        if compression is Compression.SNAPPY:
            return _decompress_snappy(memoryview(data), limit_bytes)
        return _decompress_stream(_STREAMS[compression], data, limit_bytes)
    except cramjam.DecompressionError as problem:
        raise CorruptBatch(f"the batch's {compression.name.lower()} data is damaged: {problem}") from None


def _checked_level(name: str, level: int | None) -> int:
    if level is None:
        return _DEFAULT_LEVELS[name]
    levels = LEVELS.get(name)
    if levels is None:
        raise ValueError(f"{name} has no compression levels; leave the level out")
    if level not in levels:
        raise ValueError(f"{name} level {level} is not valid (use {levels[0]} to {levels[-1]})")
    return level


def _too_large(limit_bytes: int) -> OversizedBatch:
    return OversizedBatch(f"the decompressed records exceed the limit of {limit_bytes} bytes")


_STREAMS: dict[Compression, Callable[[Any, Any], int]] = {
    Compression.GZIP: cramjam.gzip.decompress_into,
    Compression.LZ4: cramjam.lz4.decompress_into,
    Compression.ZSTD: cramjam.zstd.decompress_into,
}


def _decompress_stream(decompress_into: Callable[[Any, Any], int], data: Bytes, limit_bytes: int) -> Bytes:
    """Decompress into a buffer of a likely size, and repeat with a larger one while it is too small."""
    room_bytes = min(max(_FIRST_BYTES, _FIRST_RATIO * len(data)), limit_bytes)
    while True:
        room = bytearray(room_bytes)
        try:
            return memoryview(room)[: decompress_into(data, room)]
        except cramjam.DecompressionError as problem:
            if str(problem) != _OUTPUT_FULL:
                raise
        if room_bytes == limit_bytes:
            raise _too_large(limit_bytes)
        room_bytes = min(room_bytes * _GROWTH, limit_bytes)


def _compress_lz4(data: memoryview) -> bytearray:
    """Compress block by block at the fast level. Compressing a whole frame would hold the interpreter lock throughout.

    Each block releases the lock and may wait for it afterwards. So the blocks are as large as a frame permits.
    """
    block_bytes = next((size for size in _LZ4_HEADERS if size >= len(data)), max(_LZ4_HEADERS))
    packed = bytearray(_LZ4_HEADERS[block_bytes])
    for start in range(0, len(data), block_bytes):
        block = data[start : start + block_bytes]
        smaller = cramjam.lz4.compress_block(block, store_size=False)
        if len(smaller) < len(block):
            packed += _lz4_size.pack(len(smaller))
            packed += memoryview(smaller)
        else:
            packed += _lz4_size.pack(len(block) | _LZ4_UNCOMPRESSED)
            packed += block
    packed += _lz4_size.pack(0)
    return packed


def _compress_lz4_slowly(data: memoryview, level: int) -> memoryview:
    """Compress in small pieces, because the compressor holds the interpreter lock while it works."""
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    for start in range(0, len(data), _LZ4_SLOW_PIECE_BYTES):
        compressor.compress(bytes(data[start : start + _LZ4_SLOW_PIECE_BYTES]))  # It accepts only bytes.
    return memoryview(compressor.finish())


def _compress_snappy(data: memoryview) -> bytearray:
    packed = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES])
        packed += _size.pack(len(block))
        packed += memoryview(block)
    return packed


def _decompress_snappy(data: memoryview, limit_bytes: int) -> Bytes:
    """Decompress raw or framed Snappy. All sizes are added up before memory is allocated."""
    blocks = list(_xerial_blocks(data)) if data[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC else [data]
    total = 0
    sizes = []
    for block in blocks:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > _SNAPPY_RATIO_MAX * len(block):
            raise CorruptBatch(f"a snappy block of {len(block)} bytes claims an impossible size of {size} bytes")
        total += size
        if total > limit_bytes:
            raise _too_large(limit_bytes)
        sizes.append(size)
    room = bytearray(total)
    view = memoryview(room)
    position = 0
    for block, size in zip(blocks, sizes, strict=True):
        cramjam.snappy.decompress_raw_into(block, view[position : position + size])
        position += size
    return room


def _xerial_blocks(data: memoryview) -> Iterator[memoryview]:
    """Yield the compressed blocks of one or more framed streams."""
    position = _after_header(data, 0)
    while position < len(data):
        if len(data) - position < _size.size:
            raise CorruptBatch("the batch's snappy data is truncated within a block size")
        size = _size.unpack_from(data, position)[0]
        if size == _XERIAL_NEXT_STREAM:
            position = _after_header(data, position)
            continue
        position += _size.size
        if size <= 0 or size > len(data) - position:
            raise CorruptBatch(f"a snappy block has the size {size}, but {len(data) - position} bytes are left")
        yield data[position : position + size]
        position += size


def _after_header(data: memoryview, position: int) -> int:
    """The position of the first block of a stream whose header begins at `position`. All versions are accepted."""
    end = position + len(_XERIAL_HEADER)
    if end > len(data) or data[position : position + len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        raise CorruptBatch("the header of the batch's snappy data is incomplete or invalid")
    return end
