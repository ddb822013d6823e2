"""The producer: what users put is gathered, shared out over partitions, sent in the background and answered for.

From what is needed by every message to what is needed once:

- `chunk`: what happens per message: it joins the open chunk of its topic, and its receipt is a place in that chunk;
- `row_partitioning`: which partition each row of a chunk goes to;
- `receipts`: waiting for receipts, and the receipt of many messages;
- `batches`: a batch is encoded once, and given its number, and again if need be, without being opened;
- `batch_compression`: what is to be compressed is encoded in workers;
- `partition_queue`: batches of one partition, each stored once and in order;
- `request_batching`: batches to one broker, sent together;
- `engine`: the loop's side: takes chunks, shares them out, flushes, closes.

`chunk` and `row_partitioning` have one source that runs compiled or plain, as the record codec.
"""
