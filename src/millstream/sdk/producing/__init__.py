"""The producer: collects messages, distributes them over partitions, sends them in the background and reports results.

Ordered from work per message to work per producer:

- `chunk`: adds each message to the open chunk of its topic; a receipt points to one row of that chunk;
- `row_partitioning`, `chunk_partitioning`: choose a partition for each row, and split a chunk by partition;
- `receipt_waiters`, `bulk`: wait for receipts; one receipt for many messages;
- `message_ids`: checks the ids that callers pass;
- `batches`, `batch_compression`: encode a batch once, in a worker when it is compressed;
- `partition_queue`: stores the batches of one partition once and in order;
- `producer_identities`: keeps the producer id and epoch that the partitions share;
- `request_batching`, `leader_route`: send the batches for one broker in one request;
- `engine`: the part that runs on the event loop: takes chunks, distributes them, flushes, closes.

`chunk` and `row_partitioning` have one source that runs compiled or as plain Python, like the record codec.
"""
