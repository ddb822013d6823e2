"""Lists what is not in the table of verbs, with the reasons."""

PROPERTIES = {
    "T5": "a rule for topic names",
    "T6": "behaviour of `put` for a missing topic",
    "T8": "a topic setting",
    "W3": "a guarantee of every write",
    "W5": "a guarantee of every write",
    "C2": "a guarantee of the cluster",
    "C3": "a guarantee of the cluster",
    "P1": "the wire protocol itself",
    "P2": "gRPC itself",
    "P3": "the web API itself",
    "P4": "the SDK itself",
    "P7": "an internal interface of the broker",
    "P8": "a form of deployment",
    "P10": "a guarantee of the wire protocol",
}
"""Rows of docs/spec-coverage.md that need no verb."""

LATER = {
    "W6": "two-phase writes", "W8": "fan-out", "W9": "owner delete", "R9": "reading committed messages only",
    "L1": "timed messages", "L2": "leases", "L3": "finishing leases", "L4": "recovery of leases",
    "L5": "dead letters", "L6": "extending leases", "L7": "pushed leases", "L8": "durable leases",
    "C6": "focus", "P9": "the console",
}  # fmt: skip
"""Rows whose verbs do not exist yet. docs/spec-coverage.md marks them as "not yet"."""

_RIGHTS = "rights are planned; until then the answer is empty"
_ONE_BROKER = "sent by Kafka clients that expect several brokers"

WIRE = {
    "ApiVersions": "version negotiation between client and broker",
    "Role": "declares the role of a connection",
    "OffsetForLeaderEpoch": "detects truncation after a leader change",
    "AlterReplicaLogDirs": "replicas are not moved between data directories",
    "DescribeAcls": _RIGHTS,
    "CreateAcls": _RIGHTS,
    "DeleteAcls": _RIGHTS,
    "DescribeClientQuotas": _RIGHTS,
    "DescribeUserScramCredentials": _RIGHTS,
    "ElectLeaders": _ONE_BROKER,
    "AlterPartitionReassignments": _ONE_BROKER,
    "ListPartitionReassignments": _ONE_BROKER,
    "ListConfigResources": "sent by Kafka tools that list resources with settings",
    "DescribeProducers": "sent by Kafka tools that look for hanging transactions",
}
"""APIs of the broker that are not verbs."""

CLI = {
    "serve": "starts a broker",
    "gateway": "starts a gateway",
    "context": "names clusters on this machine",
    "pipeline": "runs Spark",
    "bench": "measures performance",
    "completion": "prints shell completions",
    "doctor": "examines the files of a stopped broker, or a running one",
}
"""Commands and command groups that are not verbs."""

ELSEWHERE = {
    "start positions of Spark": "tests/unit/spark/test_options.py::test_spark_accepts_every_start_word",
    "`/` of the web API, which redirects to `/docs`": (
        "tests/unit/gateway/http/test_paths.py::test_the_root_redirects_to_the_documentation"
    ),
}
"""The uses of the same vocabulary that are not operations on each interface, with their tests."""
