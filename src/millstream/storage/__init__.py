"""Where batches lie: logs of segments on disk, and what makes them outlive a crash.

In the order a write takes:
  store           all logs of a broker; `commit` is what an acknowledgement waits for
  log, reader     one partition's log: append, read, forget
  segment, index  a run of its batches in one file, and the sparse index beside it
  group_commit    one flush for all who wait; `flushing` is one log's share in it
  journal         makes small appends of many logs durable with one flush
  data_directory  flushes behind, writes the `checkpoint`, removes what it makes needless; `tails` calls for one early,
                  `written` tells the next process what no checkpoint knows
  cleaner         keeps the last record of each key: `dirt` says where, `compaction` what, `rewriting` makes the new
                  segment, `exchange` puts it in the place of the old ones
  mender, repair  bring back a log that the disk refused
  opening         the start: `identity` of the directories, then `recovery` of each log
  disk            the seam to the machine; `local_disk` is the real one, `millstream.testing` has the one that forgets
"""
