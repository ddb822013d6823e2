"""Tests the first requests of a connection: the client version and the role."""

from collections.abc import Callable
from typing import Any

import pytest

from interop.wire_alone import calls
from interop.wire_alone.batches import batch
from interop.wire_alone.calls import (
    API_VERSIONS,
    COMMIT_ITERATOR,
    FETCH,
    GET_ITERATOR,
    GROUP_JOIN,
    INFO,
    INIT_PRODUCER_ID,
    LIST_ITERATORS,
    PRODUCE,
    PUTS,
    READ_ITERATOR,
    ROLE,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Call,
    fetch_from,
)
from interop.wire_alone.client import Connection, Fields

PRODUCER, CONSUMER = 1, 2
OWN_KEYS_FROM = 1000
POLICY_VIOLATION, INVALID_REQUEST, VERSION_WINDOW, ROLE_IS_FINAL = 44, 42, 1000, 1008


@pytest.fixture
def port(millstream_bootstrap: str) -> int:
    return int(millstream_bootstrap.rpartition(":")[2])


def test_all_millstream_apis_are_announced_and_covered_here(port: int) -> None:
    with Connection(port) as connection:
        answer = connection.ask(API_VERSIONS, name="alone", version="1")
    served = {row["key"]: range(row["first"], row["last"] + 1) for row in answer["keys"]}
    tried = {call.key: call.version for call in vars(calls).values() if isinstance(call, Call)}
    assert all(version in served[key] for key, version in tried.items())
    assert {key for key in served if key >= OWN_KEYS_FROM} <= tried.keys()


def moved(version: str, minors: int) -> str:
    major, minor, *_ = version.split(".")
    return f"{major}.{int(minor) + minors}.0"


@pytest.mark.parametrize("minors", [0, 1, 2])
def test_a_client_within_the_version_window_is_accepted(minors: int, port: int) -> None:
    with Connection(port) as connection:
        told = connection.ask(INFO, client_version=None)
        assert told["error_code"] == 0
        assert connection.ask(INFO, client_version=moved(told["broker_version"], minors))["error_code"] == 0


@pytest.mark.parametrize("client", [3, 40, "99.0.0", "not a version"])
def test_a_client_outside_of_the_version_window_is_refused(client: int | str, port: int) -> None:
    with Connection(port) as connection:
        broker = connection.ask(INFO, client_version=None)["broker_version"]
        version = moved(broker, client) if isinstance(client, int) else client
        told = connection.ask(INFO, client_version=version)
        assert told["error_code"] == VERSION_WINDOW
        assert version in told["error_message"]
        assert broker in told["error_message"]
        assert told["client_version_min"] in told["error_message"]


def test_a_connection_role_cannot_be_changed_once_declared(port: int) -> None:
    with Connection(port) as connection:
        assert connection.ask(ROLE, role=PRODUCER, producer_group="shop")["error_code"] == 0
        assert connection.ask(ROLE, role=PRODUCER, producer_group="shop")["error_code"] == 0
        for role, group in [(CONSUMER, None), (PRODUCER, None), (PRODUCER, "other")]:
            assert connection.ask(ROLE, role=role, producer_group=group)["error_code"] == ROLE_IS_FINAL
        topic = connection.create_topic()
        assert connection.put(topic, b"still a producer")["error_code"] == 0
        answer = connection.ask(FETCH, **fetch_from(topic))
        assert POLICY_VIOLATION in failures(answer)


@pytest.mark.parametrize(("role", "group"), [(0, None), (3, None), (-1, None), (CONSUMER, "shop"), (PRODUCER, "")])
def test_an_invalid_role_is_refused_and_not_set(role: int, group: str | None, port: int) -> None:
    with Connection(port) as connection:
        assert connection.ask(ROLE, role=role, producer_group=group)["error_code"] == INVALID_REQUEST
        topic = connection.create_topic()
        assert connection.put(topic, b"v")["error_code"] == 0
        assert len(connection.stored(topic)) == 1


def produce(topic: str) -> Fields:
    partitions = [{"index": 0, "records": batch(b"v")}]
    topics = [{"name": topic, "partitions": partitions}]
    return {"transactional_id": None, "acks": -1, "timeout_ms": 30_000, "topics": topics}


def puts(topic: str) -> Fields:
    entry = {"partition": 0, "hash": 0, "records": batch(b"v"), "message_ids": None}
    return {"acks": -1, "timeout_ms": 30_000, "topics": [{"name": topic, "entries": [entry]}]}


def init_producer_id(topic: str) -> Fields:
    return {"transactional_id": None, "timeout_ms": 60_000, "producer_id": -1, "epoch": -1}


def subscribe(topic: str) -> Fields:
    partitions = [{"partition": 0, "offset": 0, "leader_epoch": -1}]
    return {
        "group_id": None,
        "window_messages": 10,
        "window_bytes": 1 << 20,
        "share_percent": 50,
        "otherwise": -3,
        "topics": [{"name": topic, "topic_id": bytes(16), "partitions": partitions}],
    }


def join(topic: str) -> Fields:
    return {"group_id": "g", "client_id": "c"}


def iter_get(topic: str) -> Fields:
    wanted = {"topic": topic, "partition": 0, "max_messages": 1, "in_flight_ms": -1, "start": -2}
    return join(topic) | wanted


def read(topic: str) -> Fields:
    return {"iterator": b"", "max_bytes": 1, "max_wait_ms": 0}


def commit(topic: str) -> Fields:
    return join(topic) | {"iterator": b"", "count": 0}


def unsubscribe(topic: str) -> Fields:
    return {"subscription_id": 1}


def failures(answer: Any) -> set[int]:
    """Return every error code in an answer."""
    if isinstance(answer, list):
        return set().union(*map(failures, answer))
    if not isinstance(answer, dict):
        return set()
    own = {answer["error_code"]} if "error_code" in answer else set()
    return own.union(*map(failures, answer.values()))


@pytest.mark.parametrize(
    ("role", "call", "fields", "error"),
    [
        (PRODUCER, FETCH, fetch_from, POLICY_VIOLATION),
        (PRODUCER, SUBSCRIBE, subscribe, ROLE_IS_FINAL),
        (PRODUCER, UNSUBSCRIBE, unsubscribe, ROLE_IS_FINAL),
        (PRODUCER, GROUP_JOIN, join, ROLE_IS_FINAL),
        (PRODUCER, GET_ITERATOR, iter_get, ROLE_IS_FINAL),
        (PRODUCER, LIST_ITERATORS, join, ROLE_IS_FINAL),
        (PRODUCER, READ_ITERATOR, read, ROLE_IS_FINAL),
        (PRODUCER, COMMIT_ITERATOR, commit, ROLE_IS_FINAL),
        (CONSUMER, PRODUCE, produce, POLICY_VIOLATION),
        (CONSUMER, PUTS, puts, ROLE_IS_FINAL),
        (CONSUMER, INIT_PRODUCER_ID, init_producer_id, POLICY_VIOLATION),
    ],
    ids=lambda value: str(value.key) if isinstance(value, Call) else None,
)
def test_requests_of_the_other_role_are_refused_without_effect(
    role: int, call: Call, fields: Callable[[str], Fields], error: int, port: int
) -> None:
    with Connection(port) as plain, Connection(port) as declared:
        topic = plain.create_topic()
        assert declared.ask(ROLE, role=role, producer_group=None)["error_code"] == 0
        assert error in failures(declared.ask(call, **fields(topic)))
        assert plain.stored(topic) == []
        # A connection without a role may send the same request.
        assert failures(plain.ask(call, **fields(topic))).isdisjoint({POLICY_VIOLATION, ROLE_IS_FINAL})
