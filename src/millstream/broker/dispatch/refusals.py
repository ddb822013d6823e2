"""Builds the responses to requests that are refused before they reach their handler, in the format of each API.

If the response has an error field at the top, that field carries the error. Otherwise every topic, partition or group
that the request names gets a row with the error.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from millstream.broker.dispatch.request import BrokerRequest, CloseConnectionError, Result, Work
from millstream.broker.response_rows import Group, encode_groups, encode_rows
from millstream.model.errors import MillstreamError
from millstream.wire.messages import read_request, response_fields, write_response
from millstream.wire.schema_readers import Fields
from millstream.wire.schema_writers import EncodedArray
from millstream.wire.topic_ref import NAMED_MAX


class _Partitions(NamedTuple):
    """The fields that hold the partitions of a row, in the request and in the response.

    `request_number` is empty if the request lists plain partition numbers.
    """

    request_array: str
    request_number: str
    response_array: str
    response_number: str


class _RowForm(NamedTuple):
    """An array of the response with one row for each element of an array of the request."""

    request_array: str
    response_array: str
    names: tuple[str, ...]
    """The fields that the response row copies. The request's elements may be plain values of the first field."""
    partitions: _Partitions | None = None
    other_fields: Mapping[str, Any] = {}
    """The values of other fields in rows with an error."""


_NUMBERED = _Partitions("partitions", "partition_index", "partitions", "partition_index")
_PLAIN = _Partitions("partition_indexes", "", "partitions", "partition_index")
_NO_OFFSET = {"committed_offset": -1, "metadata": ""}
_FORMS: Mapping[str, tuple[_RowForm, ...]] = {
    "Produce": (
        _RowForm(
            "topic_data", "responses", ("name", "topic_id"),
            _Partitions("partition_data", "index", "partition_responses", "index"), {"base_offset": -1},
        ),
    ),
    "Puts": (_RowForm("topics", "topics", ("name",), _Partitions("entries", "partition", "entries", "partition")),),
    "Fetch": (
        _RowForm(
            "topics", "responses", ("topic", "topic_id"),
            _Partitions("partitions", "partition", "partitions", "partition_index"), {"high_watermark": -1},
        ),
    ),
    "ListOffsets": (_RowForm("topics", "topics", ("name",), _NUMBERED),),
    "OffsetForLeaderEpoch": (
        _RowForm("topics", "topics", ("topic",), _Partitions("partitions", "partition", "partitions", "partition")),
    ),
    "OffsetCommit": (_RowForm("topics", "topics", ("name", "topic_id"), _NUMBERED),),
    "OffsetFetch": (
        _RowForm("groups", "groups", ("group_id",)),
        _RowForm("topics", "topics", ("name",), _PLAIN, _NO_OFFSET),
    ),
    "CreateTopics": (_RowForm("topics", "topics", ("name",)),),
    "DeleteTopics": (
        _RowForm("topics", "responses", ("name", "topic_id")),
        _RowForm("topic_names", "responses", ("name",)),
    ),
    "DeleteRecords": (_RowForm("topics", "topics", ("name",), _NUMBERED, {"low_watermark": -1}),),
    "CreatePartitions": (_RowForm("topics", "results", ("name",)),),
    "ElectLeaders": (
        _RowForm(
            "topic_partitions", "replica_election_results", ("topic",),
            _Partitions("partitions", "", "partition_result", "partition_id"),
        ),
    ),
    "DescribeProducers": (_RowForm("topics", "topics", ("name",), _PLAIN),),
    "DescribeGroups": (_RowForm("groups", "groups", ("group_id",)),),
    "ConsumerGroupDescribe": (_RowForm("group_ids", "groups", ("group_id",)),),
    "DeleteGroups": (_RowForm("groups_names", "results", ("group_id",)),),
    "CreateAcls": (_RowForm("creations", "results", ()),),
    "DeleteAcls": (_RowForm("filters", "filter_results", ()),),
    "DescribeLogDirs": (_RowForm("", "results", ()),),
}  # fmt: skip
"""The APIs with versions whose responses have no error field at the top."""

_OTHER_FIELDS: Mapping[str, Fields] = {
    "InitProducerId": {"producer_id": -1, "producer_epoch": -1},
    "DescribeClientQuotas": {"entries": None},
}
"""Fields that a response with an error must set, besides the error."""

_ROWS_FIRST = frozenset({"Fetch"})
"""APIs that report the error in rows, because a top-level error would end the client's fetch session."""


def refused(api: str, request: BrokerRequest, error: MillstreamError) -> Result:
    """Return the response that refuses a request. Raises CloseConnectionError if the request expects no response."""
    version = request.version
    response = response_fields(api, version)
    has_error = "error_code" in response
    if not has_error or api in _ROWS_FIRST:
        fields = read_request(api, version, request.frame, request.body, elements_max=NAMED_MAX)
        forms = [form for form in _FORMS[api] if form.response_array in response]
        if fields.get("acks") == 0:
            raise CloseConnectionError(error.code, error.detail)
        if not has_error or any(fields[form.request_array] for form in forms):
            return Work(_answer_rows(api, version, forms, fields, error))
    return write_response(api, version, {**_OTHER_FIELDS.get(api, {}), **_error_fields(error, response)})


def _error_fields(error: MillstreamError, available: Container[str]) -> Fields:
    """Return the error as those of its fields that the response, or the row, has."""
    fields = {"error_code": error.code.number, "error_message": error.detail}
    return {name: value for name, value in fields.items() if name in available}


async def _answer_rows(
    api: str, version: int, forms: Iterable[_RowForm], request: Fields, error: MillstreamError
) -> bytes:
    arrays: dict[str, EncodedArray] = {}
    for form in forms:
        name = form.response_array
        rows: Iterable[Any] = request.get(form.request_array) or () if form.request_array else ({},)
        if name in arrays and not rows:
            continue
        path = (name,)
        if form.partitions is None:
            failed = {**form.other_fields, **_error_fields(error, response_fields(api, version, *path))}
            arrays[name] = await encode_rows(api, version, path, ({**_named(form, row), **failed} for row in rows))
        else:
            inner = form.partitions.response_array
            failed = {**form.other_fields, **_error_fields(error, response_fields(api, version, *path, inner))}
            groups = _groups(form, form.partitions, rows, failed)
            arrays[name] = await encode_groups(api, version, path, inner, groups)
    return write_response(api, version, arrays)


def _groups(form: _RowForm, partitions: _Partitions, rows: Iterable[Any], failed: Fields) -> Iterator[Group]:
    def row(wanted: Any) -> Fields:
        number = wanted[partitions.request_number] if partitions.request_number else wanted
        return {partitions.response_number: number, **failed}

    for each in rows:
        yield _named(form, each), map(row, each[partitions.request_array])


def _named(form: _RowForm, row: Any) -> Fields:
    if isinstance(row, str):
        return {form.names[0]: row}
    return {name: row[name] for name in form.names if name in row}
