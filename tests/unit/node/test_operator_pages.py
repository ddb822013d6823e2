"""Tests that the operator pages report partitions that refuse writes, and whether the broker is ready."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.groups.runtime.coordinator import CoordinatorStats
from millstream.node.node import no_metrics
from millstream.node.operator_pages import Operator
from millstream.testing.simulated.clock import ManualClock

NOW_S = 1_000.0


def operator_over(*logs: Any) -> Operator:
    partitions: Any = SimpleNamespace(
        all=lambda: [SimpleNamespace(log=log, is_suspended=log.is_suspended) for log in logs],
        replicas=lambda: [SimpleNamespace(log=log, lacks_ids=log.lacks_ids) for log in logs],
        image=SimpleNamespace(names=()),
        count=len(logs),
        budgets=SimpleNamespace(ids=SimpleNamespace(known=0), producers=SimpleNamespace(known=0)),
    )
    counters = SimpleNamespace(requests=0, connections_accepted=0, connections_cut=0, connections_refused=0)
    memory = SimpleNamespace(incoming_bytes=0, outgoing_bytes=0)
    listener: Any = SimpleNamespace(counters=counters, memory=memory, connection_count=0)
    figures = CoordinatorStats(groups=0, members=0, loading=0, rebalances=0, offsets_committed=0, member_bytes=0)
    groups: Any = SimpleNamespace(figures=lambda: figures)
    return Operator(partitions, groups, listener, ManualClock(monotonic_s=NOW_S), no_metrics)


def log(**changes: object) -> SimpleNamespace:
    is_suspended, lacks_ids = changes.pop("is_suspended", False), changes.pop("lacks_ids", False)
    sound: dict[str, object] = {"broken": None, "quarantined": None, "refused_s": None, "may_have_lost": False}
    health = SimpleNamespace(**(sound | changes))
    return SimpleNamespace(health=health, is_suspended=is_suspended, lacks_ids=lacks_ids, size_bytes=1,
                           start_offset=0, end_offset=1)  # fmt: skip


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


def test_the_ready_page_returns_503_until_the_broker_is_ready() -> None:
    operator = operator_over()
    ready = operator.pages()["/ready"]
    assert ready().status == 503
    operator.is_ready = True
    assert ready().status == 200
