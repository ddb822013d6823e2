"""Lists the highest allowed cost of each workload, in counts that are the same on every machine.

A limit is the count at the time it was set, with some room if Python versions differ. A change that needs more raises
the limit here and gives the reason in its commit. A change that needs less may lower the limit.
"""

from collections.abc import Mapping

SOCKET_READS = "socket reads"
SOCKET_WRITES = "socket writes"
DISK_WRITES = "disk writes"
DISK_READS = "disk reads"
FLUSHES = "flushes"
WORKER_JOBS = "jobs for workers"
BYTES_WRITTEN = "bytes written to disk, per byte"
BYTES_READ = "bytes read from disk, per byte"
MEMORY_PEAK = "memory at the height, per byte"
BLOCKS_PEAK = "memory blocks at the height"
BLOCKS_KEPT = "memory blocks kept"
BYTES_KEPT = "bytes of memory kept"
CALLS = "calls of functions"
CALLS_AT_ONCE = "calls of functions between two turns of the event loop"
TASKS = "tasks"
ITERATIONS = "iterations of the event loop"
CALLBACKS = "callbacks given to the event loop"
TIMERS = "timers"

REQUEST_BYTES = "bytes of the request"
CONNECTIONS = "connections"
SUBSCRIPTIONS = "subscriptions begun"
FETCHES = "fetches"
REQUESTS = "requests of other kinds"
DECODINGS = "deliveries opened"

READ_FAMILY = "read system calls"
WRITE_FAMILY = "write system calls"

PRODUCE_LARGE = "produce a 1 MB batch, acks=all, flush os"
PRODUCE_FLUSHED = "produce a small batch from each of 64 connections, flush always: one round of group commit"
PRODUCE_FLUSHED_WIDE = f"{PRODUCE_FLUSHED}, over 16 partitions"
FETCH_LARGE = "fetch 1 MB from the page cache"
FETCH_WOKEN = "64 waiting fetches woken by one small batch"
PUSH_SMALL = "a message pushed to 64 subscribers"
PUSH_LARGE = "a megabyte written and pushed to a subscriber"
PUSH_AMONG_IDLE = "a message pushed, after a pause of the peer, to one of 1,000 subscriptions of a connection"

WAIT_FEW_TOPICS = "10,000 reads begin to wait, at 10 topics"
WAKE_FEW_TOPICS = "10,000 waiting reads are woken by a message for each of 10 topics, and wait again"
WAIT_MANY_TOPICS = "1,000 reads begin to wait, at 1,000 topics"
WAKE_MANY_TOPICS = "1,000 waiting reads are woken by a message for each of 1,000 topics, and wait again"

POLL_MANY = "a consumer's poll of 1,000 partitions, of which one has moved"

ASK_WIDE = "a gateway is asked about a topic of 5,000 partitions"
READ_WIDE = "a gateway reads a topic of 5,000 partitions"

REQUEST_METRICS = "the metrics of one request"
SCRAPE_WIDE = "a scrape of the metrics of 10,000 partitions"
SCRAPE_DATA = "a scrape of the metrics of 1,100 topics and 1,000 groups"
SAMPLE_WIDE = "a sample of the load of 10,000 partitions"
HEALTH_WIDE = "the health of 10,000 partitions"
READY_WIDE = "the readiness of 10,000 partitions"

IDLE_CONNECTION = "a connection that has asked once and is idle"
IDLE_WATCH = "a watch of a group's member while nothing changes"
IDLE_SUBSCRIPTION = "a subscription to one partition that nobody writes to"

ASK_LARGE = "produce a 1 MB batch, flush os, to the real process"
ASK_SMALL = "produce a small batch, flush os, to the real process"
ASK_FLUSHED = "produce a small batch, flush always, to the real process"
ASK_FETCH = "fetch 1 MB from the page cache, from the real process"

BUDGETS: Mapping[str, Mapping[str, float]] = {
    IDLE_CONNECTION: {
        BYTES_KEPT: 4_000,
    },
    # Two readings of the clock, and one observation that finds its bucket by bisection.
    REQUEST_METRICS: {
        CALLS: 4,
    },
    # A slice has 250 partitions or 500 lines, and takes about a millisecond.
    SCRAPE_WIDE: {
        CALLS_AT_ONCE: 5_500,
    },
    # A slice has 500 lines or committed offsets, and takes 1.1 ms: each has about 36 calls to find its partition and to
    # render it.
    SCRAPE_DATA: {
        CALLS_AT_ONCE: 19_000,
    },
    SAMPLE_WIDE: {
        CALLS_AT_ONCE: 1_300,
    },
    HEALTH_WIDE: {
        CALLS_AT_ONCE: 1_200,
    },
    READY_WIDE: {
        CALLS_AT_ONCE: 10,
    },
    # Without a fetch session it was 33,048 bytes and 28,069 calls.
    POLL_MANY: {
        REQUEST_BYTES: 80,
        CALLS: 1_200,
    },
    # It was 12,500,000 with a linear search for each partition's leader. A response is decoded without a task switch.
    ASK_WIDE: {
        CALLS_AT_ONCE: 75_000,
    },
    # One request names all partitions and limits the size of its response.
    READ_WIDE: {
        CALLS_AT_ONCE: 160_000,
    },
    # Tasks exclude the readers' own; memory is that of the SDK, per reader.
    WAIT_FEW_TOPICS: {
        CONNECTIONS: 2,
        SUBSCRIPTIONS: 10,
        FETCHES: 10,
        REQUESTS: 14,
        DECODINGS: 0,
        TASKS: 0,
        BYTES_KEPT: 3_300,
    },
    WAKE_FEW_TOPICS: {
        CONNECTIONS: 0,
        SUBSCRIPTIONS: 0,
        FETCHES: 0,
        REQUESTS: 11,
        DECODINGS: 10,
        TASKS: 0,
        BYTES_KEPT: 3_300,
    },
    WAIT_MANY_TOPICS: {
        CONNECTIONS: 2,
        SUBSCRIPTIONS: 1_000,
        FETCHES: 1_000,
        REQUESTS: 1_004,
        DECODINGS: 0,
        TASKS: 0,
        BYTES_KEPT: 9_500,
    },
    WAKE_MANY_TOPICS: {
        CONNECTIONS: 0,
        SUBSCRIPTIONS: 0,
        FETCHES: 0,
        REQUESTS: 1_001,
        DECODINGS: 1_000,
        TASKS: 0,
        BYTES_KEPT: 9_500,
    },
    IDLE_SUBSCRIPTION: {
        BYTES_KEPT: 2_000,
    },
    IDLE_WATCH: {
        BYTES_KEPT: 1_200,
    },
    PRODUCE_LARGE: {
        SOCKET_READS: 2,
        SOCKET_WRITES: 1,
        DISK_WRITES: 1,
        DISK_READS: 0,
        FLUSHES: 0,
        WORKER_JOBS: 0,
        BYTES_WRITTEN: 1,
        BYTES_READ: 0,
        TASKS: 0,
        ITERATIONS: 0,
        CALLBACKS: 0,
        TIMERS: 0,
        CALLS: 135,
        BLOCKS_PEAK: 40,
        BLOCKS_KEPT: 1,
        MEMORY_PEAK: 1.02,
    },
    # Each round writes the end marks once, without a flush: that is one write, and part of a page.
    PRODUCE_FLUSHED: {
        SOCKET_READS: 64,
        SOCKET_WRITES: 64,
        DISK_WRITES: 2,
        DISK_READS: 0,
        FLUSHES: 1,
        WORKER_JOBS: 1,
        BYTES_WRITTEN: 1.02,
        BYTES_READ: 0,
        TASKS: 0,
        ITERATIONS: 3.5,
        CALLBACKS: 4,
        TIMERS: 0.1,
        CALLS: 7_750,
        BLOCKS_PEAK: 1_700,  # Includes one acknowledgement per batch.
        BLOCKS_KEPT: 6,
        MEMORY_PEAK: 13,
    },
    PRODUCE_FLUSHED_WIDE: {
        SOCKET_READS: 64,
        SOCKET_WRITES: 64,
        DISK_WRITES: 18,
        DISK_READS: 0,
        FLUSHES: 1,
        WORKER_JOBS: 1,
        BYTES_WRITTEN: 2.4,
        BYTES_READ: 0,
        TASKS: 0,
        ITERATIONS: 3.5,
        CALLBACKS: 4,
        TIMERS: 0.1,
        CALLS: 8_300,
        BLOCKS_PEAK: 1_700,
        BLOCKS_KEPT: 6,
        MEMORY_PEAK: 13,
    },
    FETCH_LARGE: {
        SOCKET_READS: 1,
        SOCKET_WRITES: 1,
        DISK_WRITES: 0,
        DISK_READS: 1.2,
        FLUSHES: 0,
        WORKER_JOBS: 0,
        BYTES_WRITTEN: 0,
        BYTES_READ: 1.01,
        TASKS: 0,
        ITERATIONS: 0,
        CALLBACKS: 0,
        TIMERS: 0,
        CALLS: 185,
        BLOCKS_PEAK: 34,
        BLOCKS_KEPT: 1,
        MEMORY_PEAK: 1.02,
    },
    FETCH_WOKEN: {
        SOCKET_READS: 65,
        SOCKET_WRITES: 65,
        DISK_WRITES: 1,
        DISK_READS: 64,
        FLUSHES: 0,
        WORKER_JOBS: 0,
        BYTES_WRITTEN: 0.02,
        BYTES_READ: 1.01,
        TASKS: 0,
        ITERATIONS: 4.5,
        CALLBACKS: 69,
        TIMERS: 66,
        CALLS: 16_500,
        BLOCKS_PEAK: 2_700,
        BLOCKS_KEPT: 10,
        MEMORY_PEAK: 18,
    },
    PUSH_SMALL: {
        SOCKET_READS: 1,
        SOCKET_WRITES: 65,
        DISK_WRITES: 1,
        DISK_READS: 64,
        FLUSHES: 0,
        WORKER_JOBS: 0,
        BYTES_WRITTEN: 0.02,
        BYTES_READ: 1.01,
        TASKS: 0,
        ITERATIONS: 2.5,
        CALLBACKS: 3.5,
        TIMERS: 0,
        CALLS: 5_500,
        BLOCKS_PEAK: 250,
        BLOCKS_KEPT: 6,
        MEMORY_PEAK: 4,
    },
    # Idle subscriptions cost nothing, so these are the figures of a single one.
    PUSH_AMONG_IDLE: {
        SOCKET_READS: 1,
        SOCKET_WRITES: 2,
        DISK_WRITES: 1,
        DISK_READS: 1,
        FLUSHES: 0,
        WORKER_JOBS: 0,
        BYTES_WRITTEN: 1,
        BYTES_READ: 1,
        TASKS: 0,
        ITERATIONS: 1.5,
        CALLBACKS: 2.5,
        TIMERS: 0,
        CALLS: 200,
        BLOCKS_PEAK: 40,
        BLOCKS_KEPT: 3,
        MEMORY_PEAK: 20,
    },
    # A batch larger than one read: its beginning is read first, for its size.
    PUSH_LARGE: {
        SOCKET_READS: 2,
        SOCKET_WRITES: 2,
        DISK_WRITES: 1,
        DISK_READS: 2,
        FLUSHES: 0,
        WORKER_JOBS: 0,
        BYTES_WRITTEN: 1,
        BYTES_READ: 1.3,
        TASKS: 0,
        ITERATIONS: 1.5,
        CALLBACKS: 2.5,
        TIMERS: 0,
        CALLS: 240,
        BLOCKS_PEAK: 60,
        BLOCKS_KEPT: 1,
        MEMORY_PEAK: 1.3,
    },
    # Over real sockets. The kernel decides into how many pieces a megabyte is split, hence the room.
    ASK_LARGE: {READ_FAMILY: 20, WRITE_FAMILY: 2.1},
    ASK_SMALL: {READ_FAMILY: 1.1, WRITE_FAMILY: 2.1},
    ASK_FLUSHED: {READ_FAMILY: 2.1, WRITE_FAMILY: 4.1},
    ASK_FETCH: {READ_FAMILY: 4.1, WRITE_FAMILY: 8},
}


def check(workload: str, counted: Mapping[str, float], budgets: Mapping[str, Mapping[str, float]] = BUDGETS) -> None:
    """Fail with every figure that is over its limit; a figure without a limit is an error too."""
    budget = budgets[workload]
    assert sorted(counted) == sorted(budget), f"{workload}: every figure has one limit, and every limit a figure"
    over = [
        f"  {figure}: {counted[figure]:.6g}, allowed are {limit:g} ({counted[figure] - limit:+.6g})"
        for figure, limit in budget.items()
        if counted[figure] > limit
    ]
    assert not over, "\n".join([f"over budget: {workload}", *over])
