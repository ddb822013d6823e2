"""Defines distinct types for numbers and ids that must not be mixed up. At runtime each is the plain value."""

from typing import NewType
from uuid import UUID

Offset = NewType("Offset", int)
"""The number of a record in its partition, counted from 0."""
LeaderEpoch = NewType("LeaderEpoch", int)
"""The number of a partition's leadership. It increases with every new leader; -1 means unknown."""
ProducerId = NewType("ProducerId", int)
"""The number that identifies a producer in its batches; the broker detects duplicates by it."""
BrokerId = NewType("BrokerId", int)
"""The number of a broker in its cluster: Kafka's node id."""
TopicId = NewType("TopicId", UUID)
"""The id of a topic. A topic that is deleted and created again under the same name has another id."""
TopicIdBytes = NewType("TopicIdBytes", bytes)
"""The 16 bytes of a topic id; groups sort and hash topic ids in this form."""
