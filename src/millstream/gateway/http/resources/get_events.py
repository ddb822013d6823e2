"""Implements GET /events: a long poll, or a live tail as NDJSON or server-sent events."""

from collections.abc import AsyncIterator, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from millstream.gateway.failures import contradictory, missing
from millstream.gateway.http.operation_table import Example, WebOperation
from millstream.gateway.http.resources.common_parameters import CONSUMER_NAMES
from millstream.gateway.http.resources.consumers import poll_in_group
from millstream.gateway.http.resources.event_json import EventView, building, shown
from millstream.gateway.http.resources.read_parameters import ReadParameters
from millstream.gateway.http.responses import JSON, NDJSON, SSE, StreamedResponse, WebResponse, encode, problem_of
from millstream.gateway.http.web_request import WebRequest
from millstream.gateway.operations.group_consumers import NOTHING, PollResult
from millstream.gateway.operations.reads import (
    Positions,
    ReadLimits,
    TopicReader,
    format_positions,
    parse_time_ms,
)
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.rights import Right
from millstream.model.start_words import FOLLOW_START, READ_START
from millstream.records.message import Message

STREAM_WAIT_S = 15.0
"""Interval of keep-alive lines while a live tail has no messages."""


class AssignedView(msgspec.Struct, kw_only=True):
    """A partition of a group's consumer.

    `lag` is the number of offsets from the end of this answer's events to the log end. A partition without a committed
    offset counts from the group's start. It is null if this request did not read the partition, but repeated an earlier
    delivery.
    """

    partition: int
    lag: int | None


class FoundEvents(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Messages and the position that follows them."""

    topic: str
    events: list[EventView]
    next: str | UnsetType = UNSET
    """The `offset` of the next request. Missing for a group, which keeps its own position."""
    assigned: list[AssignedView] | UnsetType = UNSET
    """The partitions of a group's consumer; empty if it owns none at the moment. Missing if the gateway shuts down."""


async def get_events(request: WebRequest) -> WebResponse | StreamedResponse:
    """Read messages from the caller's position or as a consumer of a group."""
    parameters: ReadParameters = request.parameters
    kind = _wanted(request.headers.get(b"accept", b""))
    is_tail = kind is SSE or (kind is NDJSON and parameters.follow)
    if (parameters.group is None) != (parameters.consumer is None):
        raise missing("consumer" if parameters.consumer is None else "group", CONSUMER_NAMES)
    if parameters.follow and kind is JSON:
        raise contradictory("follow", "needs Accept: application/x-ndjson or text/event-stream")
    if parameters.group is not None and is_tail:
        raise contradictory("follow", "not supported with a group; a consumer of a group polls repeatedly")
    limits = parameters.limits(request.site.budget)
    if request.is_head:
        await TopicReader.open(request.site.clusters.get(parameters.cluster), parameters.topic)
        return WebResponse(b"", kind)
    if parameters.group is not None:
        work = poll_in_group(request.site.clusters.get(parameters.cluster), parameters, limits)
        polled = await request.site.draining.waiting(work)
        return _group_answer(request, kind, polled or NOTHING)
    if parameters.auto_commit:
        raise contradictory("auto_commit", f"needs a consumer; {CONSUMER_NAMES}")
    reader = await TopicReader.open(request.site.clusters.get(parameters.cluster), parameters.topic)
    positions = await _begin(request, reader, FOLLOW_START if is_tail else READ_START)
    if is_tail:
        return StreamedResponse(_tail(request, reader, positions, limits, kind), kind)
    reading = await request.site.draining.waiting(reader.read(positions, limits))
    messages, positions = ([], positions) if reading is None else reading
    return _answer(request, kind, messages, format_positions(positions, alone=parameters.partition is not None))


def _answer(request: WebRequest, kind: bytes, messages: Sequence[Message], place: str) -> WebResponse:
    with building(request, messages):
        events = _shown(request, messages)
        if kind is NDJSON:
            return WebResponse(_joined(events), NDJSON, headers={b"millstream-next": place.encode()})
        return WebResponse(encode(FoundEvents(topic=request.parameters.topic, events=events, next=place)))


def _group_answer(request: WebRequest, kind: bytes, polled: PollResult) -> WebResponse:
    with building(request, polled.messages, is_refusable=not request.parameters.auto_commit):
        return _group_response(request, kind, polled)


def _group_response(request: WebRequest, kind: bytes, polled: PollResult) -> WebResponse:
    events = _shown(request, polled.messages)
    if kind is NDJSON:
        rows = [f"{row.where.partition}:{'-' if row.lag is None else row.lag}" for row in polled.assigned or ()]
        headers = {} if polled.assigned is None else {b"millstream-assigned": ",".join(rows).encode()}
        return WebResponse(_joined(events), NDJSON, headers=headers)
    found = FoundEvents(topic=request.parameters.topic, events=events)
    if polled.assigned is not None:
        found.assigned = [AssignedView(partition=row.where.partition, lag=row.lag) for row in polled.assigned]
    return WebResponse(encode(found))


def _shown(request: WebRequest, messages: Sequence[Message]) -> list[EventView]:
    request.site.traffic.events_read += len(messages)
    return [shown(message, request.parameters.format) for message in messages]


def _joined(events: Sequence[EventView]) -> bytes:
    return b"".join(encode(event) + b"\n" for event in events)


def _wanted(accept: bytes) -> bytes:
    """Return the media type that Accept selects; JSON by default."""
    if SSE in accept:
        return SSE
    return NDJSON if b"ndjson" in accept or b"jsonl" in accept else JSON


async def _begin(request: WebRequest, reader: TopicReader, default: str) -> Positions:
    """Resolve the start position. Last-Event-ID, which a reconnecting browser sends, overrides the query."""
    parameters: ReadParameters = request.parameters
    reached = request.header(b"last-event-id")
    if reached or parameters.time is None:
        place = default if parameters.offset is None else str(parameters.offset)
        return await reader.begin(reached or place, parameters.partition)
    if parameters.offset is not None:
        raise contradictory("time", "set either offset or time, not both")
    time_ms = parse_time_ms(str(parameters.time), request.site.clock.wall_ms())
    return await reader.begin_at(time_ms, partition=parameters.partition)


async def _tail(
    request: WebRequest, reader: TopicReader, positions: Positions, limits: ReadLimits, kind: bytes
) -> AsyncIterator[bytes]:
    """Yield messages until the client disconnects or the gateway drains. An error is the last item."""
    parameters: ReadParameters = request.parameters
    limits = limits._replace(wait_s=STREAM_WAIT_S)
    read = reader.follow if parameters.partition is None else reader.read
    write = _sse if kind is SSE else _lines
    if kind is SSE:
        place = format_positions(positions, alone=parameters.partition is not None)
        yield b"id: %b\n\n" % place.encode()  # A reconnect before the first event starts here.
    try:
        while (reading := await request.site.draining.waiting(read(positions, limits))) is not None:
            with building(request, reading.messages):
                part = write(reading.messages, positions, parameters)
            request.share.take(len(part))
            request.site.traffic.events_read += len(reading.messages)
            yield part
            request.share.give_back(len(part))
            positions = reading.positions
    except MillstreamError as error:
        problem = encode(problem_of(error))
        yield b"event: error\ndata: %b\n\n" % problem if kind is SSE else b'{"error":%b}\n' % problem


def _lines(messages: Sequence[Message], positions: Positions, parameters: ReadParameters) -> bytes:
    """Return one line per message, or an empty line as keep-alive."""
    return b"".join(encode(shown(message, parameters.format)) + b"\n" for message in messages) or b"\n"


def _sse(messages: Sequence[Message], positions: Positions, parameters: ReadParameters) -> bytes:
    """Return one server-sent event per message. Its id is the next position, which a reconnecting browser sends."""
    places = dict(positions)
    parts = []
    for message in messages:
        places[message.partition] = message.offset + 1
        place = format_positions(places, alone=parameters.partition is not None)
        parts.append(b"id: %b\ndata: %b\n\n" % (place.encode(), encode(shown(message, parameters.format))))
    return b"".join(parts) or b": keep-alive\n\n"


GET_EVENTS = WebOperation(
    "GET",
    "/events",
    "getEvents",
    "Read events, with a long poll",
    Right.MESSAGES_READ,
    get_events,
    parameters=ReadParameters,
    answer=FoundEvents,
    concerns="topic",
    group="Events",
    errors=(
        ErrorCode.INVALID_TOPIC,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_CLUSTER,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNDECODABLE_BATCH,
        ErrorCode.RESPONSE_TOO_LARGE,
    ),
    media=("application/x-ndjson", "text/event-stream"),
    examples=(Example("As a group consumer", "/events?topic=orders&group=billing&consumer=a&wait=2&max_messages=10"),),
    details="""\
Returns the events at and after `offset`, and `next`: the `offset` of the next request. If there are none, the gateway
waits up to `wait` seconds for the first one, also at an offset after the log end. The default `offset` is `beginning`,
for a live tail `latest`. With `group` and `consumer` the group keeps the position. Commit the delivered events with
`POST /offset`, or with `auto_commit` in the next request; uncommitted events are delivered again. `consumer_id` alone
selects the consumer's own group, `consumer-<id>`. `assigned` has the consumer's partitions and their lag, so that an
empty answer tells whether there are no partitions or no messages.

Messages that cannot be returned end an answer; if they are the first, the problem names their `partition`, their
`offset` and the `next_offset` at which to continue: a stored batch that cannot be decoded (`UNDECODABLE_BATCH`, or
skipped with `on_bad_batch=skip`), or a message that is too large for JSON (`RESPONSE_TOO_LARGE`).

`Accept: application/x-ndjson` returns one JSON line per event; with `follow` the stream does not end. The headers
`Millstream-Next` and `Millstream-Assigned` (`partition:lag`) replace the fields `next` and `assigned`.
`Accept: text/event-stream` returns server-sent events; the id of each is the position to resume from.""",
)
