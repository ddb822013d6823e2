"""What has no row in the table of verbs, and why."""

PROPERTIES = {
    "T5": "a way of naming topics",
    "T6": "what `put` does to a topic that is not there",
    "T8": "a setting of topics",
    "W3": "a promise of every write",
    "W5": "a promise of every write",
    "C2": "a promise of the cluster",
    "C3": "a promise of the cluster",
    "P1": "the wire itself",
    "P2": "gRPC itself",
    "P3": "the web API itself",
    "P4": "the SDK itself",
    "P7": "a seam inside the broker",
    "P8": "a way to run it",
    "P10": "a promise of the wire",
}
"""Rows of docs/spec-coverage.md that ask for no verb."""

LATER = {
    "W6": "two-phase writes", "W8": "fan-out", "W9": "owner delete", "R9": "reading what is committed only",
    "L1": "timed messages", "L2": "leases", "L3": "finishing leases", "L4": "recovery of leases",
    "L5": "dead letters", "L6": "extending leases", "L7": "pushed leases", "L8": "durable leases",
    "C6": "focus", "P9": "the console",
}  # fmt: skip
"""Rows whose verbs are nowhere yet; docs/spec-coverage.md says the same of them."""

_RIGHTS = "rights come later; until then it says that there are none"
_ONE_BROKER = "asked by clients of Kafka that look for several brokers"

WIRE = {
    "ApiVersions": "how client and broker agree on versions",
    "Role": "what a connection declares of itself",
    "OffsetForLeaderEpoch": "how clients notice that a leader has changed",
    "DescribeAcls": _RIGHTS,
    "CreateAcls": _RIGHTS,
    "DeleteAcls": _RIGHTS,
    "DescribeClientQuotas": _RIGHTS,
    "DescribeUserScramCredentials": _RIGHTS,
    "ElectLeaders": _ONE_BROKER,
    "AlterPartitionReassignments": _ONE_BROKER,
    "ListPartitionReassignments": _ONE_BROKER,
    "ListConfigResources": "asked by tools of Kafka that list what has settings",
    "DescribeProducers": "asked by tools of Kafka that look for hanging transactions",
}
"""APIs of the broker that are no verbs."""

CLI = {
    "serve": "starts a broker",
    "gateway": "starts a gateway",
    "context": "names clusters on this machine",
    "pipeline": "runs Spark",
    "bench": "measures",
    "completion": "is for shells",
}
"""Commands, or groups of them, that are no verbs."""
