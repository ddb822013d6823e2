"""The error table: one row per failure, the same number everywhere."""

import pickle

import pytest
from kafka.errors import BrokerResponseError, for_code

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.connection.cluster import UnreachableError
from millstream.sdk.connection.connection import ConnectionLostError
from millstream.sdk.producing.failures import UnstoredError

OWN_NUMBERS_BEGIN = 1000
NAMED_OTHERWISE_BY_KAFKA_PYTHON = {
    "NOT_LEADER_OR_FOLLOWER": "NOT_LEADER_FOR_PARTITION",
    "MESSAGE_TOO_LARGE": "MESSAGE_SIZE_TOO_LARGE",
    "INVALID_REPLICA_ASSIGNMENT": "INVALID_REPLICATION_ASSIGNMENT",
    "INVALID_REGULAR_EXPRESSION": "UNKNOWN",  # Newer than it.
}


def test_no_number_is_given_out_twice() -> None:
    numbers = [row.number for row in ErrorCode]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize(
    "row", [row for row in ErrorCode if 0 < row.number < OWN_NUMBERS_BEGIN], ids=lambda row: row.name
)
def test_numbers_shared_with_kafka_mean_what_they_mean_there(row: ErrorCode) -> None:
    theirs = for_code(row.number)
    assert issubclass(theirs, BrokerResponseError) or row.name in NAMED_OTHERWISE_BY_KAFKA_PYTHON
    assert theirs.message in (row.name, row.name + "_EXCEPTION", NAMED_OTHERWISE_BY_KAFKA_PYTHON.get(row.name))


@pytest.mark.parametrize("row", list(ErrorCode), ids=lambda row: row.name)
def test_every_row_says_what_it_means(row: ErrorCode) -> None:
    assert row.meaning
    assert ErrorCode.of(row.number) is row


def test_an_error_without_detail_says_what_its_row_means() -> None:
    error = MillstreamError(ErrorCode.TOPIC_ALREADY_EXISTS)
    assert str(error) == "TOPIC_ALREADY_EXISTS: a topic of this name exists already"


def test_a_number_nobody_knows_is_still_shown() -> None:
    error = MillstreamError.from_number(31999, "odd")
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "31999" in str(error)
    assert "odd" in str(error)


def test_a_known_number_keeps_the_peers_text() -> None:
    error = MillstreamError.from_number(3, "no topic 'x'")
    assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error.detail == "no topic 'x'"


@pytest.mark.parametrize(
    "error",
    [
        MillstreamError(ErrorCode.INVALID_TOPIC, "it is empty"),
        MillstreamError(ErrorCode.CLIENT_CLOSED),
        UnreachableError([MillstreamError(ErrorCode.NETWORK_EXCEPTION, "nobody is there")]),
        ConnectionLostError(ErrorCode.REQUEST_TIMED_OUT, "no answer"),
        UnstoredError([(3, MillstreamError(ErrorCode.MESSAGE_TOO_LARGE, "too large"))]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_says_what_it_is_and_travels_between_processes(error: MillstreamError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (copy.code, copy.detail, str(copy), repr(copy)) == (error.code, error.detail, str(error), repr(error))
    assert repr(error).startswith(f"{type(error).__name__}({error.code.name}, ")
