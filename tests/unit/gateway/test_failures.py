"""Tests that every error has a status on every interface."""

import pytest

from millstream.gateway.failures import STATUSES, FieldError, detail_of, field_of, invalid, status_of
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.producing.failures import OutcomeUnknownError


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_every_error_code_has_an_http_and_a_grpc_status(code: ErrorCode) -> None:
    status = STATUSES[code]
    assert (status.http >= 400) == (status.grpc != 0) == (code is not ErrorCode.NONE)
    assert status_of(MillstreamError(code)) == status


def test_retriable_errors_do_not_have_a_client_error_status() -> None:
    found = {code.name for code in ErrorCode if code.retriable and STATUSES[code].http in (400, 413, 422)}
    assert found == set()


def test_a_write_with_an_unknown_outcome_is_504_for_any_error_code() -> None:
    cause = MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR, "no space")
    error = OutcomeUnknownError(TopicPartition("t", 0), cause, unanswered=False)
    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (status_of(error).http, status_of(cause).http) == (504, 503)


def test_an_error_names_its_field_if_it_is_known() -> None:
    assert field_of(invalid("offset", "it is odd")) == "offset"
    assert field_of(FieldError(ErrorCode.INVALID_TOPIC, "no name", "name")) == "name"
    assert field_of(MillstreamError(ErrorCode.INVALID_TOPIC)) == "topic"
    assert field_of(MillstreamError(ErrorCode.SHUTTING_DOWN)) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/data is full", ".../data is full"),
        ("/srv/mill/orders-0/log: damaged", ".../log: damaged"),
        ("[Errno 36] File name too long: '/my data/x y/disk'", "[Errno 36] File name too long: '.../disk'"),
        ("catalog:/a/b.sqlite, (/c/d) [/e/f]", "catalog:.../b.sqlite, (.../d) [.../f]"),
        ("2 MiB/s and/or http://host:80/docs", "2 MiB/s and/or http://host:80/docs"),
        ("orders-0: offset 7", "orders-0: offset 7"),
    ],
)
def test_errors_of_a_server_name_files_without_their_directories(text: str, expected: str) -> None:
    assert detail_of(MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR, text)) == expected
    assert detail_of(MillstreamError(ErrorCode.INVALID_REQUEST, text)) == text
