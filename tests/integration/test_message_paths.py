"""Checks that the functions named in ARCHITECTURE.md run in the documented order."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from builders.batches import batch
from builders.gateways.web import Web, with_web
from builders.requests import RawPeer
from builders.simulated_node import HOST, SimulatedMachine, simulate
from integration.call_trace import CallTrace
from millstream.node.settings import BrokerSettings
from millstream.sdk.sync.client import connect
from millstream.testing.embedded import EmbeddedBroker
from millstream.wire.fetch import FetchPartition
from millstream.wire.fetch_client import write_fetch_request
from millstream.wire.messages import write_request
from millstream.wire.produce import write_produce_request

PAGE = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text(encoding="utf-8")
_HEADING = re.compile(r"^### (.+): (\d+) steps$", re.MULTILINE)
_STEP = re.compile(r"^\d+\. `([\w/]+\.py:[\w.]+)`", re.MULTILINE)


def _steps(path: str) -> tuple[int, list[str]]:
    """The number in the heading of each path, and the functions listed below it."""
    for heading in _HEADING.finditer(PAGE):
        if heading[1] == path:
            return int(heading[2]), _STEP.findall(PAGE[heading.end() :].partition("\n#")[0])
    raise AssertionError(f"ARCHITECTURE.md has no path {path!r}")


Request = tuple[str, int, list[bytes | bytearray | memoryview]]

PRODUCE: Request = (
    "Produce",
    9,
    list(write_produce_request(9, [("orders", [(0, batch(b"x"))])], acks=-1, timeout_ms=1000)),
)
FETCH: Request = (
    "Fetch",
    12,
    [write_fetch_request(12, [("orders", [FetchPartition(0, 0, 1_000_000)])], max_wait_ms=100)],
)
COMMIT: Request = (
    "OffsetCommit",
    8,
    [
        write_request(
            "OffsetCommit",
            8,
            {
                "group_id": "billing",
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": [
                    {
                        "name": "orders",
                        "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}],
                    }
                ],
            },
        )
    ],
)


def _trace_request(request: Request) -> CallTrace:
    """Trace the broker from the bytes of a request to the bytes of its answer."""
    trace = CallTrace()

    async def story(machine: SimulatedMachine) -> None:
        node = await machine.start()
        client = await machine.client()
        await client.create_topic("orders", partitions=1)
        peer = await RawPeer.connect(machine.network.host("peer"), HOST, 9092)
        for each in (PRODUCE, COMMIT, request):
            await peer.ask_raw(*each)
        with trace.recording():
            await peer.ask_raw(*request)
        peer.close()
        client.close()
        await node.stop()

    simulate(BrokerSettings(data=("/data",), host=HOST, operator_port=-1), story)
    return trace


def _trace_post() -> CallTrace:
    """Trace a gateway, its client and the broker while a message is posted."""
    trace = CallTrace()

    async def story(web: Web) -> None:
        await web.ask("POST", "/topics", {"name": "orders", "partitions": 1})
        await web.ask("POST", "/events", {"topic": "orders", "value": "x"})
        with trace.recording():
            answered = await web.ask("POST", "/events", {"topic": "orders", "value": "x"})
        assert answered.status == 200

    with_web(story)
    return trace


def _trace_spark() -> CallTrace:
    """Trace the task of an executor and its client. The broker runs in a thread that is not traced."""
    types = pytest.importorskip("pyspark.sql.types")
    from millstream.spark.source import MillstreamSource

    trace = CallTrace()
    with EmbeddedBroker() as broker:
        with connect(broker.bootstrap) as client, client.producer() as producer:
            client.create_topic("orders", partitions=1)
            producer.put("orders", b"x").result()
        with trace.in_new_threads():
            source = MillstreamSource({"bootstrap": broker.bootstrap, "topic": "orders"})
            reader = source.reader(types.StructType([types.StructField("value", types.BinaryType())]))
            (task,) = reader.partitions()
            with trace.recording():
                batches = list(reader.read(task))
    assert len(batches) == 1
    return trace


PATHS: Mapping[str, Callable[[], CallTrace]] = {
    "A produced message": partial(_trace_request, PRODUCE),
    "A fetch": partial(_trace_request, FETCH),
    "A group commit": partial(_trace_request, COMMIT),
    "POST /events": _trace_post,
    "A Spark read": _trace_spark,
}


@pytest.mark.parametrize("path", PATHS)
def test_the_functions_of_a_message_path_run_in_the_documented_order(path: str) -> None:
    stated, steps = _steps(path)
    assert stated == len(steps)
    calls = iter(PATHS[path]().calls)
    for number, step in enumerate(steps, 1):
        assert step in calls, f"step {number}, {step}, does not run after the one before it"


WATCHED = ("partition/", "storage/flush/", "broker/append_response.py", "broker/dispatch/")
"""The modules of a produced message whose functions are listed, unless `OMITTED` gives a reason."""

OMITTED: Mapping[str, str] = {
    "broker/dispatch/capabilities.py:find_partition": "lookup",
    "broker/dispatch/request.py:DeferredResponse.queued": "note of the request",
    "partition/epochs.py:Epochs.latest": "lookup",
    "partition/opened_batches.py:BatchOpener.is_needed": "check",
    "partition/pending_appends.py:PendingAppends.__init__": "constructor",
    "partition/produce_rules.py:check_produced": "check",
    "partition/produce_rules.py:check_records": "check",
    "partition/produce_rules.py:has_producer": "check",
    "partition/served/partition_registry.py:PartitionRegistry.get": "lookup",
    "partition/watermark.py:Acknowledgement.then": "registration of the next step",
    "partition/watermark.py:Acknowledgement.wake": "helper of the watermark",
    "storage/flush/end_marks.py:EndMarks.advance": "change in memory, which EndMarks.save writes",
    "storage/flush/flush_figures.py:FlushFigures.appended": "metric",
    "storage/flush/flush_figures.py:FlushFigures.committed": "metric",
    "storage/flush/flush_figures.py:FlushFigures.round_begun": "metric",
}


def test_the_path_of_a_produced_message_omits_no_function_without_a_reason() -> None:
    path = "A produced message"
    steps = _steps(path)[1]
    called = {each for each in PATHS[path]().between_modules if each.startswith(WATCHED)}
    assert sorted(called - {*steps} - OMITTED.keys()) == []
    assert sorted(OMITTED.keys() - called | OMITTED.keys() & {*steps}) == [], "remove these from the omitted functions"


def test_every_message_path_of_the_page_has_a_test() -> None:
    assert [heading[1] for heading in _HEADING.finditer(PAGE)] == list(PATHS)
