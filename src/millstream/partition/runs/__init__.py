"""Indexes entries that are derived from a log, in sorted immutable run files beside the log.

- `layout`: the bytes of an entry and the names of the files;
- `index`: an index: unsaved entries in memory, runs on disk, and the transitions between them;
- `run_set`: the runs that are part of the index;
- `live_range`: the lowest offset and the lowest key that are still part of the index;
- `range_scan`: entries in key order;
- `run`, `run_writer`, `bloom_filter`: the files;
- `run_list`: the file that lists the runs of the index;
- `saving`, `merging`: the blocking work, for workers;
- `budget`: the entries that all indexes of a broker may hold together.
"""
