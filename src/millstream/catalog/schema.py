"""Defines the tables of the SQLite catalog, and the migrations from older schema versions.

`user_version` of the file is the number of migrations that were applied. To change the schema: append one entry to
MIGRATIONS, never edit an earlier one, and describe the table in docs/catalog.md. All migrations and the new
`user_version` are applied in one transaction, so a crash leaves the file at the old or the new version. A file with a
higher version than this code supports is refused and not changed.

Names, times and lists are readable text: times are UTC, lists of nodes are JSON arrays.
"""

APPLICATION_ID = 0x4D494C4C
"""Marks the file as a catalog of Millstream ("MILL"), so that the database of another program is refused and not
changed."""

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE cluster (
        only_row   INTEGER PRIMARY KEY CHECK (only_row = 1),
        cluster_id TEXT NOT NULL,
        created    TEXT NOT NULL
    ) STRICT;

    CREATE TABLE brokers (
        node_id     INTEGER PRIMARY KEY,
        host        TEXT NOT NULL,
        port        INTEGER NOT NULL,
        incarnation INTEGER NOT NULL,
        registered  TEXT NOT NULL
    ) STRICT;

    CREATE TABLE topics (
        topic_id   TEXT PRIMARY KEY,
        name       TEXT NOT NULL,
        partitions INTEGER NOT NULL CHECK (partitions > 0),
        state      TEXT NOT NULL CHECK (state IN ('creating', 'ready', 'deleting')),
        created    TEXT NOT NULL
    ) STRICT;

    -- The name of a topic that is being deleted is free for the next one.
    CREATE UNIQUE INDEX topics_by_name ON topics (name) WHERE state <> 'deleting';

    CREATE TABLE topic_settings (
        topic_id TEXT NOT NULL REFERENCES topics (topic_id) ON DELETE CASCADE,
        name     TEXT NOT NULL,
        value    TEXT NOT NULL,
        PRIMARY KEY (topic_id, name)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE partitions (
        topic_id        TEXT NOT NULL REFERENCES topics (topic_id) ON DELETE CASCADE,
        partition       INTEGER NOT NULL CHECK (partition >= 0),
        leader          INTEGER NOT NULL,
        leader_epoch    INTEGER NOT NULL,
        partition_epoch INTEGER NOT NULL,
        replicas        TEXT NOT NULL CHECK (json_valid(replicas)),
        in_sync         TEXT NOT NULL CHECK (json_valid(in_sync)),
        PRIMARY KEY (topic_id, partition)
    ) STRICT, WITHOUT ROWID;

    -- Producer ids are given to brokers in blocks; a block that was given is never given again.
    CREATE TABLE producers (
        first_id INTEGER PRIMARY KEY,
        last_id  INTEGER NOT NULL CHECK (last_id >= first_id),
        node_id  INTEGER NOT NULL,
        given    TEXT NOT NULL
    ) STRICT;
    """,
    """
    -- Groups and what they have committed: a copy of the internal topic's log, a moment behind it.
    CREATE TABLE consumer_groups (
        group_id      TEXT PRIMARY KEY,
        type          TEXT NOT NULL,
        state         TEXT NOT NULL,
        protocol_type TEXT NOT NULL,
        assignor      TEXT NOT NULL,
        epoch         INTEGER NOT NULL,
        members       INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE group_members (
        group_id    TEXT NOT NULL,
        member_id   TEXT NOT NULL,
        instance_id TEXT,
        client_id   TEXT NOT NULL,
        client_host TEXT NOT NULL,
        assignment  TEXT CHECK (assignment IS NULL OR json_valid(assignment)),
        PRIMARY KEY (group_id, member_id)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE offset_commits (
        group_id         TEXT NOT NULL,
        topic            TEXT NOT NULL,
        partition        INTEGER NOT NULL,
        committed_offset INTEGER NOT NULL,
        leader_epoch     INTEGER NOT NULL,
        metadata         TEXT NOT NULL,
        committed        TEXT NOT NULL,
        PRIMARY KEY (group_id, topic, partition)
    ) STRICT, WITHOUT ROWID;

    -- How far the copy is, for each partition of the internal topic.
    CREATE TABLE group_projection (
        topic_id   TEXT NOT NULL,
        partition  INTEGER NOT NULL,
        log_offset INTEGER NOT NULL,
        PRIMARY KEY (topic_id, partition)
    ) STRICT, WITHOUT ROWID;
    """,
    """
    -- What brokers of one cluster must know and nobody else: no query of a client may read it.
    CREATE TABLE secrets (
        name   TEXT PRIMARY KEY,
        secret BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    """,
    """
    -- Which producer ids belong to which producer group: given out once, and never to another.
    CREATE TABLE producer_groups (
        producer_id    INTEGER PRIMARY KEY,
        producer_group TEXT NOT NULL,
        node_id        INTEGER NOT NULL,
        given          TEXT NOT NULL
    ) STRICT;

    CREATE INDEX producer_groups_by_group ON producer_groups (producer_group, producer_id);
    """,
    """
    -- Settings of single groups; all others are those of the broker.
    CREATE TABLE group_settings (
        group_id TEXT NOT NULL,
        name     TEXT NOT NULL,
        value    TEXT NOT NULL,
        PRIMARY KEY (group_id, name)
    ) STRICT, WITHOUT ROWID;
    """,
    """
    -- The number of the last change, and a checksum of all rows that are no copies of a log.
    CREATE TABLE integrity (
        only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
        change   INTEGER NOT NULL,
        checksum BLOB NOT NULL
    ) STRICT;
    """,
)
