"""Tests the rights of APIs: each API refuses a principal without rights in its own format and changes nothing."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from builders.authorization.named_requests import named_requests
from builders.authorization.responses import error_codes
from builders.authorization.rights import Rights, all_rights, no_rights
from builders.batches import batch
from builders.disks import HeldDisk
from builders.requests import RawPeer, request_frame
from builders.served import ServedBroker, serve, until
from builders.wire_messages import served_rows
from millstream.broker.dispatch.dispatch_table import ApiRow, DispatchTable
from millstream.broker.dispatch.request import BrokerRequest, CloseConnectionError, Result, Work
from millstream.catalog.catalog import Topic
from millstream.model.authorization import ALLOW_ALL, Principal
from millstream.model.errors import ErrorCode
from millstream.model.ids import TopicId
from millstream.model.rights import Right
from millstream.storage.store import FlushPolicy
from millstream.wire.framing import read_response_header
from millstream.wire.messages import read_response, write_request
from millstream.wire.produce import write_produce_request
from millstream.wire.schema_readers import Fields
from millstream.wire.topic_ref import NAMED_MAX

ROWS = served_rows()
OPEN = {"ApiVersions", "Info", "Role", "Unsubscribe"}
"""The APIs that require no right: they show nothing of topics, groups and the cluster, and change nothing of them."""

GUARDED = sorted(api for api, row in ROWS.items() if api not in OPEN and not row.by_resource)
TOPIC = Topic("events", TopicId(UUID(int=5)), 1, {})
GROUP = "g"


def refusal(row: ApiRow) -> int:
    return (row.refused_with or row.right.refusal).number


def test_only_the_listed_apis_require_no_right() -> None:
    assert {api for api, row in ROWS.items() if row.right is Right.NOTHING} == OPEN


def refuse_all(api: str) -> tuple[ApiRow, DispatchTable]:
    """Build a table with one API that every principal is denied. Its handler must not be called."""

    def handle(request: BrokerRequest) -> Result:
        raise AssertionError("a refused request reached its handler")

    row = ROWS[api]._replace(handle=handle)
    return row, DispatchTable([row], Rights(no_rights, any_resource=False))


def answer(table: DispatchTable, key: int, version: int, body: bytes) -> Fields:
    """Return the response to a request with this body."""
    route = table.route(key, version=version)
    assert route is not None
    request = BrokerRequest(version, correlation_id=1, frame=memoryview(body), body=0)
    error = route.check(request) if route.check is not None else None
    result = route.handle(request) if error is None else table.refuse(route.api, request, error)
    if isinstance(result, Work):
        result = asyncio.run(result.run)
    assert isinstance(result, bytes)
    return read_response(route.api, version, memoryview(result), 0)


@pytest.mark.parametrize("api", GUARDED)
def test_a_refusal_has_the_apis_format_and_skips_the_handler(api: str) -> None:
    row, table = refuse_all(api)
    for version in range(row.first, row.last + 1):
        told = answer(table, row.key, version, write_request(api, version, named_requests(TOPIC, GROUP)[api]))
        assert set(error_codes(told)) == {refusal(row)}, f"version {version}"


@pytest.mark.parametrize("api", ["Heartbeat", "InitProducerId", "Query", "ReadIterator"])
def test_a_refused_request_is_not_decoded(api: str) -> None:
    row, table = refuse_all(api)
    assert set(error_codes(answer(table, row.key, row.last, b"no request"))) == {refusal(row)}


def test_each_partition_of_a_refused_fetch_has_the_error() -> None:
    row, table = refuse_all("Fetch")
    request = named_requests(TOPIC, GROUP)["Fetch"]
    told = answer(table, row.key, 13, write_request("Fetch", 13, request))
    assert told["error_code"] == 0, "clients would take it for an error of the session"
    (topic,) = told["responses"]
    assert topic["topic_id"] == TOPIC.topic_id
    assert topic["partitions"][0]["error_code"] == ErrorCode.TOPIC_AUTHORIZATION_FAILED.number
    incremental = write_request("Fetch", 13, {"session_id": 1, "session_epoch": 2})
    assert answer(table, row.key, 13, incremental)["error_code"] == ErrorCode.TOPIC_AUTHORIZATION_FAILED.number


@pytest.mark.parametrize(
    ("api", "fields"),
    [
        ("InitProducerId", {"producer_id": -1, "producer_epoch": -1}),
        ("DescribeClientQuotas", {"entries": None}),
    ],
)
def test_an_authorization_refusal_has_the_default_fields_of_an_error_response(api: str, fields: Fields) -> None:
    row, table = refuse_all(api)
    for version in range(row.first, row.last + 1):
        told = answer(table, row.key, version, write_request(api, version, named_requests(TOPIC, GROUP)[api]))
        assert {name: told[name] for name in fields} == fields, f"version {version}"


def test_a_refused_fetch_of_the_most_partitions_has_an_error_for_each() -> None:
    row, table = refuse_all("Fetch")
    wanted = {"partition": 0, "fetch_offset": 0, "log_start_offset": -1, "partition_max_bytes": 1}
    partitions = [wanted | {"partition": number} for number in range(NAMED_MAX - 1)]
    fields = named_requests(TOPIC, GROUP)["Fetch"] | {
        "topics": [{"topic_id": TOPIC.topic_id, "partitions": partitions}]
    }
    (topic,) = answer(table, row.key, 13, write_request("Fetch", 13, fields))["responses"]
    assert len(topic["partitions"]) == NAMED_MAX - 1


def test_a_refused_request_without_a_response_closes_the_connection() -> None:
    row, table = refuse_all("Produce")
    body = write_request("Produce", 9, {**named_requests(TOPIC, GROUP)["Produce"], "acks": 0})
    with pytest.raises(CloseConnectionError):
        answer(table, row.key, 9, body)


def test_the_authorizer_receives_the_principal_of_the_connection(tmp_path: Path) -> None:
    rights = Rights(all_rights)

    async def story(broker: ServedBroker) -> None:
        await (await broker.peer()).ask("InitProducerId", 0, {"transactional_id": None})
        assert rights.principals == {Principal("127.0.0.1", "ANONYMOUS")}

    serve(tmp_path, story, authorizer=rights)


def test_allow_all_adds_no_check_to_a_route() -> None:
    row = ROWS["Produce"]
    route = DispatchTable([row], ALLOW_ALL).route(row.key, version=row.last)
    assert route is not None
    assert route.check is None
    assert route.handle is row.handle


def produce_frame(partition: int) -> bytes:
    body = write_produce_request(9, [("events", [(partition, batch())])], acks=-1, timeout_ms=60_000)
    return request_frame("Produce", 9, body=body)


async def next_errors(peer: RawPeer, api: str, version: int) -> set[int]:
    frame = await peer.frame()
    return set(error_codes(read_response(api, version, frame, read_response_header(api, version, frame)[1])))


def test_a_refused_request_does_not_wait_for_an_unflushed_write(tmp_path: Path) -> None:
    rights = Rights(all_rights, without={Right.TOPICS_READ})
    disk = HeldDisk()

    async def story(broker: ServedBroker) -> None:
        await broker.topic("events", 2)
        peer = await broker.peer()
        written, following = broker.partitions.of("events")
        disk.may_flush.clear()
        try:
            refused = request_frame("ListOffsets", 7, named_requests(TOPIC, GROUP)["ListOffsets"])
            peer.send(produce_frame(0), refused, produce_frame(1))
            await until(lambda: written.log.end_offset == 1)
            await until(lambda: following.log.end_offset == 1)
        finally:
            disk.may_flush.set()
        assert await next_errors(peer, "Produce", 9) == set()
        assert await next_errors(peer, "ListOffsets", 7) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED.number}

    serve(tmp_path, story, policy=FlushPolicy.ALWAYS, disk=disk, authorizer=rights)


def test_a_refused_request_is_not_decoded_while_a_change_is_open(tmp_path: Path) -> None:
    rights = Rights(all_rights, without={Right.GROUPS_WRITE})

    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        topics = [{"name": "events", "num_partitions": 1, "replication_factor": 1}]
        create = request_frame("CreateTopics", 5, {"topics": topics, "timeout_ms": 60_000})
        peer.send(create, request_frame("Heartbeat", 4, body=[b"no request"]))
        assert await next_errors(peer, "CreateTopics", 5) == set()
        assert await next_errors(peer, "Heartbeat", 4) == {ErrorCode.GROUP_AUTHORIZATION_FAILED.number}

    serve(tmp_path, story, authorizer=rights)
