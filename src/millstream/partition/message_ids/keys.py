"""Computes the keys of message ids in the index: digests of 16 bytes, for ids of any length.

A key is the 128-bit BLAKE2b digest of an id. An id is "known" if its digest is in the index. Two different ids with the
same digest would count as one id. Among ten million ids the probability of such a pair is one in 10**24, far below that
of a memory or disk error. Creating a pair deliberately takes about 2**64 attempts, and affects only the messages of the
writer that does it.

A batch whose records have made ids has one key, computed from its header. A message with a natural id has the key of
that id. A retry under a made id is stored like a message with a natural id. It also adds the key of the batch that it
repeats, with a message count of 0: that batch was not stored and must never be stored.
"""

import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

from millstream.model.ids import ProducerId
from millstream.model.message_id import MadeId, MessageId
from millstream.partition.runs.layout import Entry, RunLayout
from millstream.records.header import BatchHeader

FENCED = 0
"""The message count of a fenced batch. It was not stored and must never be: retries store its messages by their ids."""

_BATCH = struct.Struct(">qhi")
_OWN_ID = b"="
_KEY_BYTES = 16
_VALUE = struct.Struct(">qi")

ID_LAYOUT = RunLayout(
    name="ids",
    kind=b"MIDS",
    key_bytes=_KEY_BYTES,
    value_bytes=_VALUE.size,
    offset_at=_KEY_BYTES,
    is_unique=True,
    is_hashed=True,
)
"""The layout of an entry: the digest as key, and as value an offset (8 bytes) and a message count (4 bytes)."""


class IndexedMessage(NamedTuple):
    """The offset of a message, or the offset and message count of a batch."""

    offset: int
    messages: int

    @classmethod
    def unpack(cls, value: bytes) -> "IndexedMessage":
        """Read the value of an entry."""
        return cls(*_VALUE.unpack(value))


def batch_key(producer_id: ProducerId, *, epoch: int, base_sequence: int) -> bytes:
    """Return the key of a batch whose records have made ids."""
    return blake2b(_BATCH.pack(producer_id, epoch, base_sequence), digest_size=_KEY_BYTES).digest()


def id_key(message_id: MessageId) -> bytes:
    """Return the key of a message that is stored under its own id: a natural id, or a made id of a retry."""
    data = message_id.encode() if isinstance(message_id, MadeId) else message_id
    return blake2b(_OWN_ID + data, digest_size=_KEY_BYTES).digest()


def made_key(made: MadeId) -> bytes:
    """Return the key of the batch that a made id names."""
    return batch_key(ProducerId(made.producer_id), epoch=made.epoch, base_sequence=made.base_sequence)


def batch_entry(header: BatchHeader) -> Entry:
    """Return the entry of a stored batch whose records have made ids."""
    key = batch_key(header.producer_id, epoch=header.producer_epoch, base_sequence=header.base_sequence)
    return key, _VALUE.pack(header.base_offset, header.last_offset_delta + 1)


def id_keys(ids: Sequence[MessageId]) -> list[bytes]:
    """Return the keys of messages with own ids.

    If the first id is a made id, the messages are a retry. Then the last key is that of the batch that the made id
    names.
    """
    keys = [id_key(each) for each in ids]
    if ids and isinstance(ids[0], MadeId):
        keys.append(made_key(ids[0]))
    return keys


def id_entries(keys: Sequence[bytes], offsets: Sequence[int]) -> Iterator[Entry]:
    """Yield the entries of stored messages with own ids, from the result of `id_keys` and the messages' offsets."""
    for key, offset in zip(keys, offsets, strict=False):
        yield key, _VALUE.pack(offset, 1)
    for key in keys[len(offsets) :]:
        yield key, _VALUE.pack(offsets[0], FENCED)
