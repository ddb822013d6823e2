"""Tests the debug log of requests: one line per request, with duration and errors, without names and values."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from builders.batches import batch
from builders.requests import RawPeer
from builders.served import ServedBroker, produce, serve
from millstream.broker.dispatch.dispatch_table import ApiRow, DispatchTable
from millstream.broker.dispatch.request import BrokerRequest, DeferredResponse, Work
from millstream.broker.dispatch.request_log import logged
from millstream.broker.net.client_info import ClientInfo
from millstream.model.authorization import ALLOW_ALL
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.rights import Right
from millstream.process.logs import fields_of
from millstream.seams.clock import SystemClock
from millstream.storage.store import FlushPolicy

NOW_S = SystemClock().monotonic_s


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [fields_of(record) for record in caplog.records if record.msg == "request handled"]


def request() -> BrokerRequest:
    peer = ClientInfo()
    peer.connected("10.0.0.1", 5)
    peer.introduced(memoryview(b"app"))
    return BrokerRequest(1, correlation_id=1, frame=memoryview(b""), body=0, peer=peer)


def test_each_request_of_a_client_is_one_line_without_the_data_in_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer: RawPeer = await broker.peer()
        caplog.clear()
        await peer.ask("ApiVersions", 3, {"client_software_name": "a", "client_software_version": "1"})
        await produce(peer, "events", batch(b"precious value"))
        topics = [{"name": "events", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}]
        await peer.ask("CreateTopics", 5, {"topics": topics, "timeout_ms": 1000, "validate_only": False})
        found = lines(caplog)
        assert [line["api"] for line in found] == ["ApiVersions", "Produce", "CreateTopics"]
        assert [line.get("error") for line in found] == [None, None, "TOPIC_ALREADY_EXISTS"]
        host, port = peer.transport.get_extra_info("sockname")[:2]
        for line in found:
            assert (line["peer"], line["client_id"]) == (f"{host}:{port}", "test")
            assert line["duration_ms"] >= 0
            assert line.keys() <= {"api", "version", "peer", "client_id", "duration_ms", "error"}

    with caplog.at_level(logging.DEBUG):
        serve(tmp_path, story, policy=FlushPolicy.ALWAYS)


@pytest.mark.parametrize(("level", "is_plain"), [(logging.INFO, True), (logging.DEBUG, False)])
def test_handlers_are_not_wrapped_above_the_debug_level(
    level: int, is_plain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(request: BrokerRequest) -> bytes:
        return b""

    with caplog.at_level(level):
        route = DispatchTable([ApiRow(18, "ApiVersions", 0, 4, Right.NOTHING, handle)], ALLOW_ALL).route(18, version=4)
    assert route is not None
    assert (route.handle is handle) is is_plain


def test_a_failed_request_is_logged_with_its_error(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(request: BrokerRequest) -> bytes:
        raise MillstreamError(ErrorCode.INVALID_REQUEST, "no")

    async def fail() -> bytes:
        raise ValueError("broken")

    async def story() -> None:
        with pytest.raises(MillstreamError):
            logged("Metadata", refuse, NOW_S)(request())
        work = logged("Metadata", lambda _: Work(fail()), NOW_S)(request())
        assert isinstance(work, Work)
        with pytest.raises(ValueError, match="broken"):
            await asyncio.create_task(work.run)
        inner = DeferredResponse()
        outer = logged("Metadata", lambda _: inner, NOW_S)(request())
        inner.fail(ValueError("broken"))
        assert isinstance(outer, DeferredResponse)
        assert isinstance(outer.error, ValueError)

    with caplog.at_level(logging.DEBUG):
        asyncio.run(story())
    assert [line["error"] for line in lines(caplog)] == ["INVALID_REQUEST", "ValueError", "ValueError"]


def test_a_deferred_response_becomes_work_through_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        inner = DeferredResponse()
        outer = logged("Metadata", lambda _: inner, NOW_S)(request())
        assert isinstance(outer, DeferredResponse)
        started: list[tuple[Work, DeferredResponse]] = []
        outer.when_done(lambda _: None, lambda work, later: started.append((work, later)))
        work = Work(asyncio.sleep(0, b"done"))
        inner.become(work)
        assert started == [(work, inner)]
        inner.finish(await work.run)
        assert (outer.is_done, outer.answer) == (True, b"done")

    with caplog.at_level(logging.DEBUG):
        asyncio.run(story())
    assert len(lines(caplog)) == 1


def test_work_that_is_closed_before_it_runs_closes_its_coroutine() -> None:
    async def story() -> None:
        work = logged("Metadata", lambda _: Work(asyncio.sleep(0, b"")), NOW_S)(request())
        assert isinstance(work, Work)
        work.run.close()

    asyncio.run(story())


def test_the_duration_of_a_request_has_the_precision_of_the_given_clock(caplog: pytest.LogCaptureFixture) -> None:
    times = iter([10.0, 10.000_25])

    async def story() -> None:
        logged("Metadata", lambda _: b"", lambda: next(times))(request())

    with caplog.at_level(logging.DEBUG):
        asyncio.run(story())
    assert [line["duration_ms"] for line in lines(caplog)] == [0.25]
