"""Tests the error table: one row per failure, with the same number on every interface."""

import pickle

import pytest
from kafka.errors import BrokerResponseError, for_code

import millstream
from millstream.model.errors import ErrorCode, FieldError, MillstreamError, UnknownTopicError, UnreachableError
from millstream.sdk.connection.cluster import NoBrokerError
from millstream.sdk.connection.connection import ConnectionLostError
from millstream.sdk.producing.failures import UnstoredError

OWN_NUMBERS_BEGIN = 1000
NAMED_OTHERWISE_BY_KAFKA_PYTHON = {
    "NOT_LEADER_OR_FOLLOWER": "NOT_LEADER_FOR_PARTITION",
    "MESSAGE_TOO_LARGE": "MESSAGE_SIZE_TOO_LARGE",
    "INVALID_REPLICA_ASSIGNMENT": "INVALID_REPLICATION_ASSIGNMENT",
    "INVALID_REGULAR_EXPRESSION": "UNKNOWN",  # Newer than it.
}


def test_error_numbers_are_unique() -> None:
    numbers = [row.number for row in ErrorCode]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize(
    "row", [row for row in ErrorCode if 0 < row.number < OWN_NUMBERS_BEGIN], ids=lambda row: row.name
)
def test_error_numbers_shared_with_kafka_have_the_same_name(row: ErrorCode) -> None:
    theirs = for_code(row.number)
    assert issubclass(theirs, BrokerResponseError) or row.name in NAMED_OTHERWISE_BY_KAFKA_PYTHON
    assert theirs.message in (row.name, row.name + "_EXCEPTION", NAMED_OTHERWISE_BY_KAFKA_PYTHON.get(row.name))


@pytest.mark.parametrize("row", list(ErrorCode), ids=lambda row: row.name)
def test_every_error_has_a_meaning_and_is_found_by_its_number(row: ErrorCode) -> None:
    assert row.meaning
    assert ErrorCode.of(row.number) is row


def test_an_error_without_detail_has_the_meaning_of_its_row() -> None:
    error = MillstreamError(ErrorCode.TOPIC_ALREADY_EXISTS)
    assert str(error) == "TOPIC_ALREADY_EXISTS: a topic of this name already exists"


def test_an_unknown_error_number_is_part_of_the_text() -> None:
    error = MillstreamError.from_number(31999, "odd")
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "31999" in str(error)
    assert "odd" in str(error)


def test_an_error_from_a_peer_keeps_its_text() -> None:
    error = MillstreamError.from_number(3, "no topic 'x'")
    assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error.detail == "no topic 'x'"


@pytest.mark.parametrize(
    "error",
    [
        MillstreamError(ErrorCode.INVALID_TOPIC, "it is empty"),
        MillstreamError(ErrorCode.CLIENT_CLOSED),
        NoBrokerError([MillstreamError(ErrorCode.NETWORK_EXCEPTION, "nobody is there")]),
        ConnectionLostError(ErrorCode.REQUEST_TIMED_OUT, "no answer"),
        UnstoredError([(3, MillstreamError(ErrorCode.MESSAGE_TOO_LARGE, "too large"))]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_pickling_with_code_and_detail(error: MillstreamError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (copy.code, copy.detail, str(copy), repr(copy)) == (error.code, error.detail, str(error), repr(error))
    assert repr(error).startswith(f"{type(error).__name__}({error.code.name}, ")


def test_a_code_with_an_exception_class_makes_objects_of_that_class() -> None:
    error = MillstreamError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic 'x'")
    assert type(error) is UnknownTopicError
    assert type(MillstreamError.from_number(3, "no topic 'x'")) is UnknownTopicError
    assert type(pickle.loads(pickle.dumps(error))) is UnknownTopicError
    assert error.retriable
    assert (error.code, error.detail) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic 'x'")


def test_a_code_without_an_exception_class_makes_a_millstream_error() -> None:
    error = MillstreamError(ErrorCode.TOPIC_ALREADY_EXISTS)
    assert type(error) is MillstreamError
    assert not error.retriable


def test_a_subclass_keeps_its_class_whatever_its_code() -> None:
    lost = ConnectionLostError(ErrorCode.REQUEST_TIMED_OUT, "no answer")
    assert type(lost) is ConnectionLostError
    assert isinstance(lost, UnreachableError)
    assert type(FieldError(ErrorCode.INVALID_TOPIC, "it is empty", "topic")) is FieldError


def test_every_exception_class_is_exported() -> None:
    for kind in {type(MillstreamError(code)) for code in ErrorCode}:
        assert getattr(millstream, kind.__name__) is kind
