"""What a caller may do with a topic, a group or the cluster, in the bits that Kafka's answers have for it.

Nothing is forbidden yet, so it is everything, as Kafka answers where no rights are checked: the bits are its numbers
for the operations.
"""

TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))

NOT_ASKED = -(2**31)
"""In the place of operations that the request does not ask for."""
