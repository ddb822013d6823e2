"""Tests the errors made from brokers' responses."""

import pytest

from millstream.model.broker_endpoint import BrokerEndpoint
from millstream.model.errors import ErrorCode
from millstream.model.ids import BrokerId
from millstream.model.names import TopicPartition
from millstream.sdk import requests
from millstream.sdk.responses import Broker, NotLeaderError, refusal
from millstream.wire.current_leader import CurrentLeader
from millstream.wire.produce import ProduceResult
from millstream.wire.puts import write_puts_response


@pytest.mark.parametrize(
    ("concerns", "text", "detail"),
    [
        ("creating topic 'a'", "topic 'a' already exists", "topic 'a' already exists"),
        ("creating topic 'a'", "foo: no such setting", "creating topic 'a': foo: no such setting"),
        ("creating topic 'a'", None, f"creating topic 'a': {ErrorCode.INVALID_REQUEST.meaning}"),
        ("listing groups", "it's late", "listing groups: it's late"),
    ],
)
def test_an_error_text_names_its_subject_once(concerns: str, text: str | None, detail: str) -> None:
    assert refusal(ErrorCode.INVALID_REQUEST.number, concerns, text).detail == detail


@pytest.mark.parametrize(
    ("code", "is_named"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.FENCED_LEADER_EPOCH, True),
        (ErrorCode.MESSAGE_TOO_LARGE, False),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False),
    ],
)
def test_only_leader_errors_of_a_response_have_the_current_leader(code: ErrorCode, is_named: bool) -> None:
    where = TopicPartition("orders", 0)
    leader = CurrentLeader(3, 7, BrokerEndpoint(BrokerId(3), "host", 9_092))
    body = write_puts_response([("orders", [ProduceResult(0, code.number, current_leader=leader)])])
    error = requests.puts(where, b"", None, acks=-1, timeout_ms=1).decode(0, memoryview(body), 0)
    found = (error.leader_id, error.leader_epoch, error.broker) if isinstance(error, NotLeaderError) else None
    assert getattr(error, "code", None) is code
    assert found == ((3, 7, Broker(3, "host", 9_092)) if is_named else None)
