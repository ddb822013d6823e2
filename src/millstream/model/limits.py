"""Bounds that several packages must agree on."""

REQUEST_BYTES_MAX = 100 * 1024 * 1024
"""Largest frame the broker reads."""

MESSAGE_BYTES_MAX = 1_048_588
"""Largest batch a topic takes unless it says otherwise: Kafka's default, a mebibyte and a batch header's overhead."""

PARTITIONS_PER_TOPIC_MAX = 10_000

NO_PRODUCER_ID = -1
FIRST_SELF_NAMED_PRODUCER = 2**62
"""Producer ids from there on are never given out: writers make them from names of their own."""

NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1
