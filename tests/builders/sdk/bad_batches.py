"""Builds record batches whose checksum is right and whose records cannot be decoded."""

from random import Random

from millstream.records.batch import encode_batch, seal
from millstream.records.checksum import crc32c
from millstream.records.header import CRC_START, HEADER_BYTES, LENGTH_END, read_header

COUNT = 3
"""The number of offsets of a bad batch."""

KINDS = ("inner", "compressed")


def bad_batch(kind: str = "inner", size_bytes: int = 200) -> bytes:
    """Build a batch of `COUNT` records: its decompressed records are garbage ("inner"), or its compressed data is."""
    header = read_header(encode_batch([b""] * COUNT, timestamps=1, compression="zstd"))
    garbage = b"\xff" * 12 + Random(7).randbytes(size_bytes)
    if kind == "inner":
        return bytes(seal(bytearray(HEADER_BYTES) + garbage, header))
    batch = bytearray(encode_batch([b""] * COUNT, timestamps=1, compression="zstd")[:HEADER_BYTES]) + garbage
    batch[LENGTH_END - 4 : LENGTH_END] = (len(batch) - LENGTH_END).to_bytes(4, "big")
    batch[CRC_START - 4 : CRC_START] = crc32c(memoryview(batch)[CRC_START:]).to_bytes(4, "big")
    return bytes(batch)
