"""Tests that the operator pages report partitions that refuse writes, and whether the broker is ready."""

import asyncio
import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.node.health import NAMES_MAX, BrokerHealth, FindingSource, no_findings
from millstream.node.operator_http import Response
from millstream.node.operator_pages import Operator
from millstream.node.partition_census import SLICE
from millstream.process.findings import Finding, OpenPort
from millstream.testing.simulated.clock import ManualClock

NOW_S = 1_000.0


def operator_over(
    *logs: Any,
    children: FindingSource = no_findings,
    sources: Sequence[FindingSource] = (),
    ports: Sequence[OpenPort] = (),
) -> Operator:
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
    )
    health = BrokerHealth(children=children, sources=sources)
    health.opened(ports)
    return Operator([], partitions, ManualClock(monotonic_s=NOW_S), health)


def page(operator: Operator, path: str) -> Response:
    async def load() -> Response:
        made = operator.pages()[path]()
        return made if isinstance(made, Response) else await made

    return asyncio.run(load())


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
    answer = page(operator, "/health")
    told = json.loads(answer.body)
    assert answer.status == 200
    assert (told["status"], told["partitions"], told["partitions_refusing_writes"]) == (status, len(logs), refusing)
    assert f"\nmillstream_partitions_refusing_writes {refusing}\n".encode() in page(operator, "/metrics").body
    assert f"\nmillstream_problems {len(told['problems'])}\n".encode() in page(operator, "/metrics").body


def test_health_is_degraded_after_a_truncation_that_may_have_lost_messages() -> None:
    operator = operator_over(log(), log(may_have_lost=True))
    told = json.loads(page(operator, "/health").body)
    assert (told["status"], told["partitions_truncated"]) == ("degraded", 1)
    assert b"\nmillstream_partitions_truncated 1\n" in page(operator, "/metrics").body


def test_health_counts_partitions_that_rebuild_their_message_ids() -> None:
    operator = operator_over(log(), log(lacks_ids=True))
    told = json.loads(page(operator, "/health").body)
    assert (told["status"], told["partitions_refusing_writes"]) == ("degraded", 0)
    assert told["partitions_rebuilding_message_ids"] == 1
    assert b"\nmillstream_partitions_rebuilding_message_ids 1\n" in page(operator, "/metrics").body


def test_health_is_degraded_after_a_rebuild_that_lost_message_ids() -> None:
    told = health_of(operator_over(log(), log(ids_lost=176)))
    assert told["status"] == "degraded"
    assert "has lost up to 176 message ids" in told["problems"][0]


def test_the_ready_page_returns_503_until_the_broker_is_ready() -> None:
    operator = operator_over()
    assert page(operator, "/ready").status == 503
    operator.is_ready = True
    assert page(operator, "/ready").status == 200


def health_of(operator: Operator) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page(operator, "/health").body)
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
    ready = page(operator, "/ready")
    assert (ready.status, ready.body) == (503, b"not ready: the gateway exited with code 1\n")
    found.pop(0)
    assert page(operator, "/ready").status == 200


def test_health_contains_the_findings_of_the_components() -> None:
    warning = Finding("client 10.0.0.7 reconnects often", is_problem=False)
    health = health_of(operator_over(log(), sources=[lambda: [warning], lambda: [Finding("the disk is slow")]]))
    assert (health["status"], health["problems"], health["warnings"]) == (
        "degraded", ["the disk is slow"], [warning.text]
    )  # fmt: skip


@pytest.mark.parametrize("path", ["/health", "/metrics"])
def test_pages_over_many_partitions_let_other_work_run(path: str) -> None:
    operator = operator_over(*(log() for _ in range(4 * SLICE)))

    async def load() -> int:
        turns = 0

        async def beat() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beating = asyncio.create_task(beat())
        made = operator.pages()[path]()
        assert not isinstance(made, Response)
        await made
        beating.cancel()
        return turns

    assert asyncio.run(load()) >= 8, "each list of partitions is walked in four slices"


def test_a_listener_beyond_loopback_is_a_warning_in_health_and_log(caplog: pytest.LogCaptureFixture) -> None:
    ports = [OpenPort("the Kafka port", "0.0.0.0", 9092), OpenPort("the operator port", "127.0.0.1", 9644)]
    health = health_of(operator_over(log(), ports=ports))
    assert (health["status"], health["problems"], len(health["warnings"])) == ("ok", [], 1)
    assert health["warnings"][0].startswith("the Kafka port on 0.0.0.0:9092 is reachable from other hosts without")
    assert caplog.messages == ["listener reachable from other hosts without authentication"]
