"""Defines limits that several packages must agree on."""

from millstream.model.ids import LeaderEpoch, ProducerId

REQUEST_BYTES_MAX = 100 * 1024 * 1024
"""The largest request frame that the broker reads."""

MESSAGE_BYTES_MAX = 1_048_588
"""The default of max.message.bytes, the largest batch of a topic. It is Kafka's default: 1 MiB and batch overhead."""

PARTITIONS_PER_TOPIC_MAX = 10_000

PARTITIONS_PER_BROKER_MAX = 50_000
"""The default of `partitions_max`. Each partition costs memory and a directory, and clients can create them."""

NO_PRODUCER_ID = ProducerId(-1)
FIRST_SELF_NAMED_PRODUCER = 2**62
"""The first producer id that is reserved for numbered writers, which derive it from their name.

Brokers never assign such an id.
"""

NO_TIMESTAMP = -1
NO_LEADER_EPOCH = LeaderEpoch(-1)
