"""Implements POST /events: events as JSON, as lines of JSON, or one event as the bytes of the body."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from millstream.gateway.failures import FieldError, TitledError, contradictory, invalid, missing
from millstream.gateway.http.field_names import hint
from millstream.gateway.http.operation_table import Example, WebOperation
from millstream.gateway.http.resources.event_bodies import (
    ABSENT,
    Event,
    NewEvents,
    StoredEvent,
    StoredEvents,
    StoredRow,
    WriteParameters,
)
from millstream.gateway.http.resources.event_columns import columns_of
from millstream.gateway.http.responses import WebResponse, problem_answer, problem_of, within
from millstream.gateway.http.web_request import MalformedBodyError, WebRequest, read_json
from millstream.gateway.operations.clusters import DEFAULT, ClusterMember, ServedCluster
from millstream.gateway.operations.writes import EventColumns, WriteResult, check_write_times, write, write_one
from millstream.gateway.traffic import Traffic
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.rights import Right

JSON_TYPES = frozenset((b"", b"application/json", b"application/x-www-form-urlencoded"))
"""Media types that are read as JSON. The last one is curl's default."""
LINE_TYPES = frozenset(
    (b"application/x-ndjson", b"application/ndjson", b"application/jsonl", b"application/json-lines")
)

IDEMPOTENCY_KEY_MAX = 240

_PARAMETER_PREFIX = b"millstream-"
_HEADER_PREFIX = b"millstream-header-"

OF_ONE_EVENT = [name for name in Event.__struct_fields__ if name != "topic"]
OF_RAW_EVENTS = [name for name in OF_ONE_EVENT if name in WriteParameters.__struct_fields__]

_decode_body = msgspec.json.Decoder(NewEvents)
_decode_line = msgspec.json.Decoder(Event)


class PostedEvents:
    """The posted events by topic. With several topics, `rows` has the indexes of each topic's events in the request."""

    def __init__(self, cluster: str, lots: list[EventColumns], rows: list[Sequence[int]] | None = None) -> None:
        self.cluster = cluster
        self.lots = lots
        self.rows = rows
        self.is_single = False

    @property
    def topics(self) -> list[str]:
        return [lot.topic for lot in self.lots]


# Body.


def read_posted(request: WebRequest, data: bytes) -> PostedEvents:
    """Decode the body. MalformedBodyError if that fails, INVALID_REQUEST, naming the field, for an invalid field."""
    kind = request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind in JSON_TYPES:
        return _read_json(request, data)
    if kind in LINE_TYPES:
        return _read_lines(request, data)
    if kind.startswith(b"multipart/"):
        text = "multipart forms are not supported; post JSON or bytes"
        title = "the media type is not supported"
        raise TitledError(ErrorCode.INVALID_REQUEST, text, "Content-Type", title=title)
    return _read_raw(request, data)


def _read_json(request: WebRequest, data: bytes) -> PostedEvents:
    _check_query(request.parameters)
    if not data:
        raise MalformedBodyError('the body is empty; send JSON such as {"topic": "orders", "value": "hello"}')
    _check_text(data)
    posted: NewEvents = read_json(data, _decode_body)
    cluster = posted.cluster or request.parameters.cluster or DEFAULT
    topic = posted.topic or request.parameters.topic
    if posted.events is None:
        found = _posted(request, cluster, topic, [posted], "")
        found.is_single = True
        return found
    for name in OF_ONE_EVENT:
        if getattr(posted, name) not in (None, ABSENT):
            raise contradictory(name, "not allowed beside `events`; set it in each event")
    return _posted(request, cluster, topic, posted.events, "events")


def _read_lines(request: WebRequest, data: bytes) -> PostedEvents:
    _check_query(request.parameters)
    _check_text(data)
    try:
        events = _decode_line.decode_lines(data)
    except msgspec.ValidationError as error:
        raise within("events", error) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedBodyError(f"the body is not valid NDJSON: {error}") from None
    return _posted(request, request.parameters.cluster or DEFAULT, request.parameters.topic, events, "events")


def _check_query(parameters: WriteParameters) -> None:
    """Refuse parameters that a JSON body would ignore. A retry with an ignored message id would be stored twice."""
    for name in OF_RAW_EVENTS:
        if getattr(parameters, name) is not None:
            raise contradictory(name, "allowed in the query only if the body is not JSON; set it in each event")


def _check_text(data: bytes) -> None:
    try:
        str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedBodyError(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None


def _posted(request: WebRequest, cluster: str, topic: str | None, events: Sequence[Event], path: str) -> PostedEvents:
    most = request.site.limits.events
    if not 1 <= len(events) <= most:
        raise invalid("events", f"{len(events)} events (accepted: 1 to {most} per request, see the setting events_max)")
    by_topic = _by_topic(topic, events, path)
    key = _idempotency_key(request)
    is_alone = len(by_topic) == 1
    lots = []
    for own, rows in by_topic.items():
        columns = columns_of(own, events if is_alone else [events[row] for row in rows], path, rows)
        _give_ids(columns, key, rows, path)
        lots.append(columns)
    return PostedEvents(cluster, lots, None if is_alone else list(by_topic.values()))


def _by_topic(topic: str | None, events: Sequence[Event], path: str) -> dict[str, Sequence[int]]:
    """Return the indexes of each topic's events."""
    own = [event.topic for event in events]
    if topic is not None and own.count(None) == len(own):
        return {topic: range(len(own))}
    found: dict[str, list[int]] = {}
    for row, each in enumerate(own):
        if each is None and topic is None:
            raise missing(f"{path}[{row}].topic" if path else "topic", "set it in the event or for all events")
        found.setdefault(each or topic or "", []).append(row)
    return {**found}


def _give_ids(columns: EventColumns, key: str | None, rows: Sequence[int], path: str) -> None:
    """Derive an id for each event from an idempotency key. Ids of the events themselves take precedence."""
    if key is None:
        return
    own = columns.message_ids or [None] * len(columns)
    made = [f"{key}.{row}" for row in rows] if path else [key]
    columns.message_ids = [mine or other for mine, other in zip(own, made, strict=True)]


def _read_raw(request: WebRequest, data: bytes) -> PostedEvents:
    """Read one event whose value is the body. Query parameters and Millstream- headers set its other fields."""
    given: dict[str, Any] = {}
    headers: list[tuple[str, bytes | None]] = []
    for name, value in request.head:
        if name.startswith(_HEADER_PREFIX):
            headers.append((name.removeprefix(_HEADER_PREFIX).decode("latin-1"), value))
        elif name.startswith(_PARAMETER_PREFIX):
            given[_parameter_of(name)] = request.header(name)
    query = msgspec.structs.asdict(request.parameters)
    given.update({name: value for name, value in query.items() if value is not None})
    parameters = msgspec.convert(given, WriteParameters, strict=False)
    if parameters.topic is None:
        raise missing("topic", "set it in the query or in the header Millstream-Topic")
    if not data:
        raise missing("body", 'it is the value of the event; for an empty value send JSON with "value": ""')
    if parameters.timestamp is not None:
        check_write_times([parameters.timestamp], lambda _: "timestamp")
    own_id = parameters.message_id or _idempotency_key(request)
    columns = EventColumns(
        parameters.topic,
        [data],
        None if parameters.key is None else [parameters.key.encode()],
        [headers] if headers else None,
        None if parameters.timestamp is None else [parameters.timestamp],
        None if parameters.partition is None else [parameters.partition],
        None if parameters.hash is None else [parameters.hash],
        None if own_id is None else [own_id],
    )
    posted = PostedEvents(parameters.cluster or DEFAULT, [columns])
    posted.is_single = True
    return posted


def _parameter_of(header: bytes) -> str:
    """Return the parameter that a Millstream- header sets. Raises INVALID_REQUEST for an unknown one."""
    name = header.removeprefix(_PARAMETER_PREFIX).decode("latin-1").replace("-", "_")
    if name not in WriteParameters.__struct_fields__:
        why = f"unknown header; {hint(WriteParameters, '', name)}, or Millstream-Header-<name> for the event's headers"
        raise invalid(header.decode("latin-1"), why, "unknown header")
    return name


def _idempotency_key(request: WebRequest) -> str | None:
    key = request.header(b"idempotency-key").strip('"')
    if len(key.encode()) > IDEMPOTENCY_KEY_MAX:
        text = f"the idempotency key exceeds {IDEMPOTENCY_KEY_MAX} bytes"
        raise FieldError(ErrorCode.INVALID_MESSAGE_ID, text, "Idempotency-Key")
    return key or None


# Writing.


async def post_events(request: WebRequest) -> StoredEvent | StoredEvents | WebResponse:
    """Store the events and return their offsets. If some were not stored, the problem has their ids for a retry."""
    posted: PostedEvents = request.body
    cluster = request.site.clusters.get(posted.cluster)
    timeout_s: float | None = request.parameters.timeout
    traffic = request.site.traffic
    if posted.is_single:
        return await _post_one(cluster, posted.lots[0], timeout_s, traffic)
    if len(posted.lots) == 1:
        columns = posted.lots[0]
        written = await write(await cluster.home(columns.topic), columns, timeout_s)
        traffic.events_written += written.stored
        rows = _rows(written)
        return _failed(written.failures, rows) if written.failures else StoredEvents(events=rows, topic=columns.topic)
    return await _post_to_many(cluster, posted, timeout_s, traffic)


async def _post_one(
    cluster: ServedCluster, columns: EventColumns, timeout_s: float | None, traffic: Traffic
) -> StoredEvent | WebResponse:
    written = await write_one(await cluster.home(columns.topic), columns, timeout_s)
    traffic.events_written += written.stored
    message_id = shown_id(written.message_ids[0])
    if written.failures:
        return problem_answer(problem_of(written.failures[0], message_id=message_id))
    return StoredEvent(
        topic=columns.topic,
        partition=written.partitions[0],
        offset=written.offsets[0],
        message_id=message_id,
        duplicate=0 in written.duplicates,
    )


async def _post_to_many(
    cluster: ServedCluster, posted: PostedEvents, timeout_s: float | None, traffic: Traffic
) -> StoredEvents | WebResponse:
    assert posted.rows is not None
    homes = [await cluster.home(columns.topic) for columns in posted.lots]
    found = await asyncio.gather(*(_write_lot(*each, timeout_s) for each in zip(homes, posted.lots, strict=True)))
    rows: dict[int, StoredRow] = {}
    failures: dict[int, MillstreamError] = {}
    for columns, places, written in zip(posted.lots, posted.rows, found, strict=True):
        traffic.events_written += written.stored
        for at, row in enumerate(_rows(written, columns.topic)):
            rows[places[at]] = row
        failures.update({places[at]: error for at, error in written.failures.items()})
    ordered = [rows[at] for at in range(len(rows))]
    return _failed(failures, ordered) if failures else StoredEvents(events=ordered)


async def _write_lot(member: ClusterMember, columns: EventColumns, timeout_s: float | None) -> WriteResult:
    """Write the events of one topic as `write` does. An error of the whole topic is reported for each of its events.

    Events of other topics may be stored by then, so the request as a whole must not fail.
    """
    try:
        return await write(member, columns, timeout_s)
    except MillstreamError as error:
        nowhere = [-1] * len(columns)
        ids = [str(own or "").encode() for own in columns.message_ids or [None] * len(columns)]
        return WriteResult(nowhere, nowhere, ids, dict.fromkeys(range(len(columns)), error))


def _rows(written: WriteResult, topic: str | UnsetType = UNSET) -> list[StoredRow]:
    duplicates = frozenset(written.duplicates)
    columns = zip(written.partitions, written.offsets, written.message_ids, strict=True)
    rows = [
        StoredRow(partition=partition, offset=offset, message_id=shown_id(own), topic=topic, duplicate=at in duplicates)
        for at, (partition, offset, own) in enumerate(columns)
    ]
    for at, error in written.failures.items():
        rows[at].error = problem_of(error)
    return rows


def _failed(failures: Mapping[int, MillstreamError], rows: list[StoredRow]) -> WebResponse:
    """Return a problem with the error of the first failed event and the outcome of each event."""
    first = failures[min(failures)]
    detail = f"{len(failures)} of {len(rows)} events were not acknowledged; first error: {first.detail}"
    problem = problem_of(first, events=rows)
    problem.detail = detail
    return problem_answer(problem)


def shown_id(message_id: bytes) -> str:
    """Return an id as text. Bytes that are not UTF-8 are escaped."""
    return message_id.decode(errors="backslashreplace")


_ONE = {"topic": "orders", "key": "customer-17", "value": {"item": "tea", "count": 2}}
_MANY = {"events": [{"value": "first"}, {"value": "second", "key": "a"}, {"value_base64": "AP8="}]}
_LINES = b'{"value": "first", "key": "a"}\n{"value": "second", "key": "b"}\n'

POST_EVENTS = WebOperation(
    "POST",
    "/events",
    "postEvents",
    "Write events",
    Right.MESSAGES_WRITE,
    post_events,
    parameters=WriteParameters,
    body=NewEvents,
    read_body=read_posted,
    answer=StoredEvents,
    other_answer=StoredEvent,
    concerns="topics",
    group="Events",
    errors=(
        ErrorCode.INVALID_TOPIC,
        ErrorCode.INVALID_MESSAGE_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_CLUSTER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.REQUEST_TIMED_OUT,
    ),
    bodies=("application/x-ndjson", "application/octet-stream"),
    examples=(
        Example("One event", "/events?topic=orders", _ONE),
        Example("Many events", "/events?topic=orders", _MANY),
        Example("With a message id", "/events?topic=orders", {**_ONE, "message_id": "order-4711"}),
        Example("Lines of JSON", "/events?topic=orders", _LINES, "application/x-ndjson"),
        Example("Bytes", "/events?topic=orders", b"anything", "application/octet-stream"),
    ),
    details="""\
The body is one event, many events in `events`, or one JSON line per event (`application/x-ndjson`). With any other
media type the body itself is the value of one event; set its other fields as query parameters or as headers such as
`Millstream-Key` and `Millstream-Header-Trace`. The answer arrives after the events are stored durably, in the order of
the request. The answer to a single event is not in a list. With an `Idempotency-Key` header or a `message_id` a retry
stores nothing twice, and has `"duplicate": true` in its answer.""",
)
