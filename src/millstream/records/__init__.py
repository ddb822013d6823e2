"""Record batch v2: Kafka's format, and the only one in which Millstream sends, stores and replicates messages.

A batch is a header of 61 bytes (laid out in `millstream.records.header`) and, behind it, the records, all together
compressed or not (`millstream.records.compression`). Uncompressed, each record is:

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

A varint is a zigzag number (0, -1, 1, -2 become 0, 1, 2, 3) in groups of seven bits, the lowest first; all bytes but
the last have their highest bit set. It has up to 32 bits, a varlong up to 64.

In a control batch a record is a mark and not a message: its key holds a version and a type (0 abort, 1 commit), two
bytes each, its value a version of two bytes and the coordinator's epoch of four.

The parts, from what is needed most to what is needed least:

- `header`: read, check and stamp a batch without opening it;
- `produced_batch`: the same in one pass for the batches that producers usually send; the broker's common path;
- `batch`: from lists to a batch and back to records;
- `arrow`: from Arrow tables to batches and back, without a Python object per record (needs PyArrow);
- `compaction`: a batch with fewer records, or with none;
- `checksum`: CRC-32C;
- `compression`: within bounds that no hostile batch gets past;
- `message`: a message as a consumer hands it out;
- `record_encoder`, `record_decoder`, `record_keys`: the codec itself. Each of these, `message` and `produced_batch`,
  has one source that runs compiled or as plain Python, with the same results;
- `compiled`: which of the two it is here.

The package itself imports none of them: of two threads that first need different ones, one would hold the package and
wait for a module, the other hold that module and wait for the package.

Whatever is wrong with a batch that came from outside is a `CorruptBatch`, found within the time and the memory that the
size of the batch and the caller's limit allow.
"""
