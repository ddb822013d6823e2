"""Ids as the index knows them: 16 bytes each, whatever the id's own length.

A key is the BLAKE2b digest of 128 bits of an id. "Known" therefore means: the digests are equal. Two different ids with
the same digest would be taken for one; among ten million ids the chance that any two are is one in 10**24, far below
that of the memory or the disk lying. Who wants to make two on purpose needs some 2**64 attempts, and harms only the
messages that he writes himself.

A batch whose records have made ids has one key, of what its header says. A message that was stored under an id of its
own has the key of that id. A retry of a made id is such a message too; it has, beside its own key, that of the batch
which it repeats, with no messages: that batch was not there, and must
not come any more.
"""

import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

from millstream.model.message_id import MadeId, MessageId
from millstream.records.header import BatchHeader

KEY_BYTES = 16
FENCED = 0
"""The messages of a batch that was not stored and must not be: its messages were, or will be, under their own ids."""

_BATCH = struct.Struct(">qhi")
_OWN_ID = b"="


class IndexedMessage(NamedTuple):
    """Where a message is, or the first of so many messages of a batch."""

    offset: int
    messages: int


Entry = tuple[bytes, IndexedMessage]


def batch_key(producer_id: int, epoch: int, base_sequence: int) -> bytes:
    """The key of a batch whose records have made ids."""
    return blake2b(_BATCH.pack(producer_id, epoch, base_sequence), digest_size=KEY_BYTES).digest()


def id_key(message_id: MessageId) -> bytes:
    """The key of a message that is stored under an id of its own."""
    data = message_id.encode() if isinstance(message_id, MadeId) else message_id
    return blake2b(_OWN_ID + data, digest_size=KEY_BYTES).digest()


def made_key(made: MadeId) -> bytes:
    """The key of the batch that a made id names."""
    return batch_key(made.producer_id, made.epoch, made.base_sequence)


def batch_entry(header: BatchHeader) -> Entry:
    """What the index has of a stored batch whose records have made ids."""
    key = batch_key(header.producer_id, header.producer_epoch, header.base_sequence)
    return key, IndexedMessage(header.base_offset, header.last_offset_delta + 1)


def id_keys(ids: Sequence[MessageId]) -> list[bytes]:
    """The keys of messages under ids of their own, and behind them that of the batch which the first one repeats."""
    keys = [id_key(each) for each in ids]
    if ids and isinstance(ids[0], MadeId):
        keys.append(made_key(ids[0]))
    return keys


def id_entries(keys: Sequence[bytes], offsets: Sequence[int]) -> Iterator[Entry]:
    """What the index has of stored messages with ids of their own: what `id_keys` gives for them, and their offsets."""
    for key, offset in zip(keys, offsets, strict=False):
        yield key, IndexedMessage(offset, 1)
    for key in keys[len(offsets) :]:
        yield key, IndexedMessage(offsets[0], FENCED)
