"""Tests the first requests of a client: ApiVersions, Info, FindCoordinator and InitProducerId."""

from pathlib import Path
from typing import Any

import pytest

from builders.loops import for_each
from builders.partitions import CLUSTER, HOST
from builders.requests import framed
from builders.served import ServedBroker, serve
from millstream.model.errors import ErrorCode
from millstream.model.roles import Role
from millstream.wire.framing import read_correlation_id
from millstream.wire.messages import read_response
from millstream.wire.schema import load

SERVED = {
    0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 18: (0, 4), 22: (0, 6), 23: (2, 4),
    # Groups
    8: (2, 10), 9: (1, 10), 10: (0, 6), 11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5),
    42: (0, 2), 47: (0, 0), 68: (0, 1), 69: (0, 1),
    # Administration
    19: (2, 7), 20: (1, 6), 21: (0, 2), 29: (1, 3), 30: (1, 3), 31: (1, 3), 32: (1, 4), 33: (0, 2), 34: (1, 2),
    35: (1, 5), 37: (0, 3), 43: (0, 2), 44: (0, 1), 45: (0, 1), 46: (0, 0), 48: (0, 1), 50: (0, 0), 60: (0, 2),
    61: (0, 0), 74: (0, 1), 75: (0, 0),
    # Maps
    1004: (0, 0), 1005: (0, 0),
    # Push
    1020: (0, 0), 1021: (0, 0), 1022: (0, 0),
    # Our own
    1000: (0, 0), 1001: (0, 0), 1002: (0, 0),
    1003: (0, 0),
    **dict.fromkeys(range(1010, 1019), (0, 0)),
}  # fmt: skip


@for_each("version", range(5))
def test_api_versions_lists_the_served_apis(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        fields = {"client_software_name": "test", "client_software_version": "1"} if version >= 3 else {}
        answer = await (await broker.peer()).ask("ApiVersions", version, fields)
        told = {row["api_key"]: (row["min_version"], row["max_version"]) for row in answer["api_keys"]}
        assert told == SERVED
        assert answer["error_code"] == 0
        # Missing features are not advertised: no transactions, no telemetry.
        assert not answer["supported_features"]
        assert not answer["finalized_features"]
        # aiokafka asserts this of every key.
        assert all(first <= last for first, last in told.values())

    serve(tmp_path, story)


@for_each("version", [5, 99, -1])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        head = (18).to_bytes(2) + version.to_bytes(2, signed=True) + (3).to_bytes(4)
        peer.send(framed(head + b"\x00\x01x" + b"whatever that version has"))
        frame = await peer.frame()
        answer = read_response("ApiVersions", 0, frame, 4)
        assert read_correlation_id(frame) == 3
        assert answer["error_code"] == ErrorCode.UNSUPPORTED_VERSION.number
        assert answer["api_keys"] == [{"api_key": 18, "min_version": 0, "max_version": 4}]
        assert (await peer.ask("ApiVersions", 0))["error_code"] == 0

    serve(tmp_path, story)


def test_every_row_of_the_dispatch_table_matches_key_and_versions_of_its_schema(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        for row in broker.table.rows.values():
            schema = load(f"{row.api}Request")
            assert schema.key == row.key
            assert row.first in schema.versions
            assert row.last in schema.versions

    serve(tmp_path, story)


@pytest.mark.parametrize(
    ("client", "is_within"),
    [
        (None, True),
        ("1.5.0", True),
        ("1.3", True),
        ("1.7.9", True),
        ("1.2.9", False),
        ("1.8.0", False),
        ("2.5.0", False),
        ("nonsense", False),
        ("1.", False),
        ("1.99999999999999999999", False),
    ],
)
def test_info_returns_versions_time_and_identity(client: str | None, is_within: bool, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        answer = await (await broker.peer()).ask("Info", 0, {"client_version": client})
        assert (answer["broker_version"], answer["cluster_id"], answer["node_id"]) == ("1.5.0", CLUSTER, 1)
        assert (answer["client_version_min"], answer["client_version_max"]) == ("1.3", "1.7")
        assert answer["server_time_ms"] == broker.clock.wall_ms()
        assert answer["features"] == [{"name": "flush", "value": "os"}]
        if is_within:
            assert (answer["error_code"], answer["error_message"]) == (0, None)
        else:
            assert answer["error_code"] == ErrorCode.VERSION_WINDOW.number
            assert "1.5.0" in answer["error_message"]
            assert str(client) in answer["error_message"]

    serve(tmp_path, story, features={"flush": "os"})


@for_each("version", range(7))
@pytest.mark.parametrize("key_type", [0, 1])
def test_a_single_broker_is_every_coordinator(version: int, key_type: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        fields: dict[str, Any] = {"key_type": key_type}
        fields |= {"coordinator_keys": ["a", "b"]} if version >= 4 else {"key": "a"}
        answer = await (await broker.peer()).ask("FindCoordinator", version, fields)
        rows = answer["coordinators"] if version >= 4 else [answer]
        assert len(rows) == (2 if version >= 4 else 1)
        for row in rows:
            assert (row["node_id"], row["host"], row["port"]) == (1, HOST, broker.port)
            assert row["error_code"] == 0

    serve(tmp_path, story)


def test_an_unknown_coordinator_type_is_refused(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        fields = {"key_type": 9, "coordinator_keys": ["a"]}
        (row,) = (await (await broker.peer()).ask("FindCoordinator", 4, fields))["coordinators"]
        assert (row["error_code"], row["node_id"]) == (ErrorCode.INVALID_REQUEST.number, -1)

    serve(tmp_path, story)


@for_each("version", range(7))
def test_every_producer_gets_an_id_of_its_own(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        answers = [await peer.ask("InitProducerId", version, {"transactional_id": None}) for _ in range(3)]
        assert len({answer["producer_id"] for answer in answers}) == 3
        assert all((answer["error_code"], answer["producer_epoch"]) == (0, 0) for answer in answers)

    serve(tmp_path, story)


def test_a_transactional_producer_gets_an_error_that_clients_do_not_retry(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        answer = await (await broker.peer()).ask("InitProducerId", 0, {"transactional_id": "mine"})
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert (answer["error_code"], answer["producer_id"]) == (refused.number, -1)

    serve(tmp_path, story)


def test_a_producer_id_belongs_to_the_declared_producer_group(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        grouped, other = await broker.peer(), await broker.peer()
        await grouped.ask("Role", 0, {"role": Role.PRODUCER.value, "producer_group": "shop"})
        await other.ask("Role", 0, {"role": Role.PRODUCER.value, "producer_group": None})
        given = [(await grouped.ask("InitProducerId", 4, {"transactional_id": None}))["producer_id"] for _ in range(2)]
        await other.ask("InitProducerId", 4, {"transactional_id": None})
        assert broker.catalog.producer_groups == dict.fromkeys(given, "shop")

    serve(tmp_path, story)
