"""Encodes and decodes record batches of Kafka's format v2. Millstream sends, stores and replicates only this format.

A batch is a header of 61 bytes (described in `millstream.records.header`), followed by the records, which may be
compressed as a whole (`millstream.records.compression`). Uncompressed, each record is:

================= ========== ===========================================================================
field             type       meaning
================= ========== ===========================================================================
length            varint     bytes of the record that follow
attributes        int8       unused
timestamp_delta   varlong    milliseconds after the header's base_timestamp; may be negative
offset_delta      varint     offset minus the header's base_offset; compaction leaves gaps
key               varint +   length and bytes; length -1 is null
value             varint +   length and bytes; length -1 is null, a tombstone where the topic is compacted
header count      varint
header key        varint +   length and UTF-8 text, never null
header value      varint +   length and bytes; length -1 is null; key and value come once for each header
================= ========== ===========================================================================

A varint is a zigzag number (0, -1, 1, -2 become 0, 1, 2, 3) in groups of seven bits, the lowest first. All bytes except
the last have their highest bit set. A varint has up to 32 bits, a varlong up to 64.

In a control batch a record is a marker, not a message. Its key contains a version and a type (0 abort, 1 commit), two
bytes each. Its value contains a version of two bytes and the coordinator's epoch of four.

The modules, in the order of the most frequent use:

- `header`: reads, checks and stamps a batch without decoding its records;
- `produced_batch`: the same in one pass for the usual batches of producers, on the broker's fast path;
- `batch`: encodes lists of values into a batch, and decodes batches into records;
- `arrow`: converts Arrow tables to batches and back without a Python object per record (needs PyArrow);
- `compaction`: creates batches with fewer records, or with none;
- `checksum`: CRC-32C;
- `compression`: compresses, and decompresses within limits that also hold for hostile batches;
- `message`: the message that a consumer returns;
- `record_encoder`, `record_decoder`, `record_keys`: the codec itself. These three, `message` and `produced_batch` each
  have one source that runs compiled or as plain Python, with the same results;
- `compiled`: reports which of the two is in use.

The package itself imports none of them. Otherwise two threads that first import different modules could deadlock: one
holds the package's import lock and waits for a module, and the other holds that module and waits for the package.

Every error in a batch from outside is a `CorruptBatch`. Finding it takes no more time and memory than the size of the
batch and the caller's limit allow.
"""
