"""Tests that the operator pages report partitions that refuse writes, and whether the broker is ready."""

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.groups.runtime.coordinator import CoordinatorStats
from millstream.node.health import NAMES_MAX, BrokerHealth, FindingSource, no_findings
from millstream.node.node import no_metrics
from millstream.node.operator_pages import Operator
from millstream.process.findings import Finding, OpenPort
from millstream.testing.simulated.clock import ManualClock

NOW_S = 1_000.0


def operator_over(*logs: Any, children: FindingSource = no_findings, ports: Sequence[OpenPort] = ()) -> Operator:
    partitions: Any = SimpleNamespace(
        all=lambda: [
            SimpleNamespace(log=log, is_suspended=log.is_suspended, topic="orders", number=number)
            for number, log in enumerate(logs)
        ],
        replicas=lambda: [
            SimpleNamespace(
                log=log,
                lacks_ids=log.lacks_ids,
                ids_lost=log.ids_lost,
                topic="orders",
                key=SimpleNamespace(partition=number),
            )
            for number, log in enumerate(logs)
        ],
        image=SimpleNamespace(names=()),
        count=len(logs),
        budgets=SimpleNamespace(ids=SimpleNamespace(known=0), producers=SimpleNamespace(known=0)),
    )
    counters = SimpleNamespace(requests=0, connections_accepted=0, connections_cut=0, connections_refused=0)
    memory = SimpleNamespace(incoming_bytes=0, outgoing_bytes=0)
    listener: Any = SimpleNamespace(counters=counters, memory=memory, connection_count=0)
    figures = CoordinatorStats(groups=0, members=0, loading=0, rebalances=0, offsets_committed=0, member_bytes=0)
    groups: Any = SimpleNamespace(figures=lambda: figures)
    clock = ManualClock(monotonic_s=NOW_S)
    health = BrokerHealth(partitions, clock, children=children)
    health.opened(ports)
    return Operator(partitions, groups, listener, clock, no_metrics, health)


def log(**changes: object) -> SimpleNamespace:
    is_suspended, lacks_ids = changes.pop("is_suspended", False), changes.pop("lacks_ids", False)
    ids_lost = changes.pop("ids_lost", 0)
    sound: dict[str, object] = {"broken": None, "quarantined": None, "refused_s": None, "may_have_lost": False}
    health = SimpleNamespace(**(sound | changes))
    return SimpleNamespace(health=health, is_suspended=is_suspended, lacks_ids=lacks_ids, size_bytes=1,
                           start_offset=0, end_offset=1, ids_lost=ids_lost)  # fmt: skip


@pytest.mark.parametrize(
    ("logs", "status", "refusing"),
    [
        ([log(), log()], "ok", 0),
        ([log(), log(broken=OSError("full"))], "degraded", 1),
        ([log(), log(is_suspended=True)], "degraded", 1),
        ([log(), log(refused_s=NOW_S - 29)], "degraded", 1),
        ([log(), log(refused_s=NOW_S - 31)], "ok", 0),
        ([log(quarantined="a checksum is wrong"), log(broken="waits")], "degraded", 2),
    ],
)
def test_health_counts_partitions_that_refuse_writes(logs: list[object], status: str, refusing: int) -> None:
    operator = operator_over(*logs)
    answer = operator.pages()["/health"]()
    told = json.loads(answer.body)
    assert answer.status == 200
    assert (told["status"], told["partitions"], told["partitions_refusing_writes"]) == (status, len(logs), refusing)
    assert f"\nmillstream_partitions_refusing_writes {refusing}\n".encode() in operator.pages()["/metrics"]().body


def test_health_is_degraded_after_a_truncation_that_may_have_lost_messages() -> None:
    operator = operator_over(log(), log(may_have_lost=True))
    told = json.loads(operator.pages()["/health"]().body)
    assert (told["status"], told["partitions_truncated"]) == ("degraded", 1)
    assert b"\nmillstream_partitions_truncated 1\n" in operator.pages()["/metrics"]().body


def test_health_counts_partitions_that_rebuild_their_message_ids() -> None:
    operator = operator_over(log(), log(lacks_ids=True))
    told = json.loads(operator.pages()["/health"]().body)
    assert (told["status"], told["partitions_refusing_writes"]) == ("degraded", 0)
    assert told["partitions_rebuilding_message_ids"] == 1
    assert b"\nmillstream_partitions_rebuilding_message_ids 1\n" in operator.pages()["/metrics"]().body


def test_health_is_degraded_after_a_rebuild_that_lost_message_ids() -> None:
    told = health_of(operator_over(log(), log(ids_lost=176)))
    assert told["status"] == "degraded"
    assert "has lost up to 176 message ids" in told["problems"][0]


def test_the_ready_page_returns_503_until_the_broker_is_ready() -> None:
    operator = operator_over()
    ready = operator.pages()["/ready"]
    assert ready().status == 503
    operator.is_ready = True
    assert ready().status == 200


def health_of(operator: Operator) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(operator.pages()["/health"]().body)
    return found


def test_health_names_each_partition_with_its_reason() -> None:
    logs = [log(), log(quarantined="a checksum is wrong"), log(may_have_lost=True), log(lacks_ids=True)]
    problems = health_of(operator_over(*logs))["problems"]
    assert problems[0] == "partition orders-1 refuses writes: it is quarantined: a checksum is wrong"
    assert problems[1].startswith("partition orders-2 may have lost acknowledged messages at this start")
    assert problems[2] == "partition orders-3 is rebuilding its message ids from the log"


def test_health_names_a_limited_number_of_partitions() -> None:
    problems = health_of(operator_over(*(log(is_suspended=True) for _ in range(NAMES_MAX + 3))))["problems"]
    assert len(problems) == NAMES_MAX + 1
    assert problems[-1] == "3 further partitions refuse writes; the log names them"


def test_a_problem_of_a_child_degrades_health_and_readiness() -> None:
    found = [Finding("the gateway exited with code 1", blocks_ready=True), Finding("broker 2 of c exited")]
    operator = operator_over(log(), children=lambda: found)
    operator.is_ready = True
    health = health_of(operator)
    assert (health["status"], health["problems"]) == ("degraded", [finding.text for finding in found])
    ready = operator.pages()["/ready"]()
    assert (ready.status, ready.body) == (503, b"not ready: the gateway exited with code 1\n")
    found.pop(0)
    assert operator.pages()["/ready"]().status == 200


def test_a_listener_beyond_loopback_is_a_warning_in_health_and_log(caplog: pytest.LogCaptureFixture) -> None:
    ports = [OpenPort("the Kafka port", "0.0.0.0", 9092), OpenPort("the operator port", "127.0.0.1", 9644)]
    health = health_of(operator_over(log(), ports=ports))
    assert (health["status"], health["problems"], len(health["warnings"])) == ("ok", [], 1)
    assert health["warnings"][0].startswith("the Kafka port on 0.0.0.0:9092 is reachable from other hosts without")
    assert caplog.messages == ["listener reachable from other hosts without authentication"]
