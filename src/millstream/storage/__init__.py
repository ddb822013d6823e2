"""Stores record batches on disk: segmented logs, and the flushes and recovery that make them survive a crash.

In the order of a write:
  store           all logs of a broker
  log/            one partition's log: `log` appends, `log_reader` and `log_scan` read, `write_buffer` collects the
                  appends of a round; `flush_state` tracks what is not flushed, `log_health` disk errors;
                  `segment` is one file with its `sparse_index`
  flush/          `group_commit` flushes once for all waiting writers, `journal` makes small appends of many logs
                  durable with one flush, `checkpoint` and `written_marks` tell recovery where to begin
  data_directory  one directory: its lock, logs and journals; it writes checkpoints and removes old journals
  cleaning/       `retention` removes segments by age and size; `cleaner` compacts: `cleanable_range` selects segments,
                  `compaction` records; `rewriting` writes the new segment, `segment_exchange` swaps it in
  recovery/       the start: `directory_startup`, `directory_identity`, `log_recovery`; after a disk error:
                  `auto_repair` and `repair`
  snapshot        state derived from a log, saved beside it; `sealed_file` is the format of all small files

The interface to the disk is `millstream.seams.disk`; `millstream.seams.local_disk` implements it.
"""
