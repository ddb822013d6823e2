"""GET /events: a long poll, or a live tail as lines of JSON or server-sent events."""

from collections.abc import AsyncIterator, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from millstream.gateway.failures import invalid
from millstream.gateway.http.operation_table import Example, WebOperation
from millstream.gateway.http.resources.consumers import poll_in_group
from millstream.gateway.http.resources.event_json import EventView, shown
from millstream.gateway.http.resources.read_parameters import ReadParameters
from millstream.gateway.http.responses import JSON, NDJSON, SSE, StreamedResponse, WebResponse, encode, problem_of
from millstream.gateway.http.web_request import WebRequest
from millstream.gateway.operations.reads import (
    BEGINNING,
    LATEST,
    Positions,
    ReadLimits,
    TopicReader,
    parse_time_ms,
    place_text,
)
from millstream.gateway.rights import Right
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.records.message import Message

STREAM_WAIT_S = 15.0
"""How long a live tail is silent before a sign of life goes out."""


class FoundEvents(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Messages, and where to go on."""

    topic: str
    events: list[EventView]
    next: str | UnsetType = UNSET
    """The next request's `offset`; a group keeps its place itself."""


async def get_events(asked: WebRequest) -> WebResponse | StreamedResponse:
    """What is there from the caller's place on, or from the group's."""
    parameters: ReadParameters = asked.parameters
    kind = _wanted(asked.headers.get(b"accept", b""))
    is_tail = kind is SSE or (kind is NDJSON and parameters.follow)
    if (parameters.group is None) != (parameters.consumer is None):
        raise invalid("consumer" if parameters.consumer is None else "group", "a group and a consumer go together")
    if parameters.follow and kind is JSON:
        raise invalid("follow", "it is for lines of JSON (Accept: application/x-ndjson) and for server-sent events")
    if parameters.group is not None and is_tail:
        raise invalid("follow", "a live tail keeps its own place; a consumer of a group asks again and again")
    if asked.is_head:
        await TopicReader.open(asked.site.clusters.get(parameters.cluster), parameters.topic)
        return WebResponse(b"", kind)
    if parameters.group is not None:
        work = poll_in_group(asked.site.clusters.get(parameters.cluster), parameters)
        polled = await asked.site.draining.waiting(work)
        return _answer(asked, kind, [] if polled is None else polled, UNSET)
    if parameters.auto_commit:
        raise invalid("auto_commit", "it is for a consumer of a group")
    reader = await TopicReader.open(asked.site.clusters.get(parameters.cluster), parameters.topic)
    positions = await _begin(asked, reader, LATEST if is_tail else BEGINNING)
    if is_tail:
        return StreamedResponse(_tail(asked, reader, positions, kind), kind)
    limits = ReadLimits(parameters.max_messages, parameters.max_bytes, parameters.wait)
    reading = await asked.site.draining.waiting(reader.read(positions, limits))
    messages, positions = ([], positions) if reading is None else reading
    return _answer(asked, kind, messages, place_text(positions, alone=parameters.partition is not None))


def _answer(asked: WebRequest, kind: bytes, messages: Sequence[Message], place: str | UnsetType) -> WebResponse:
    parameters: ReadParameters = asked.parameters
    asked.site.traffic.events_read += len(messages)
    if kind is NDJSON:
        lines = b"".join(encode(shown(message, parameters.format)) + b"\n" for message in messages)
        headers = {} if isinstance(place, UnsetType) else {b"millstream-next": place.encode()}
        return WebResponse(lines, NDJSON, headers=headers)
    events = [shown(message, parameters.format) for message in messages]
    return WebResponse(encode(FoundEvents(topic=parameters.topic, events=events, next=place)))


def _wanted(accept: bytes) -> bytes:
    """The form that the caller asks for, JSON unless it is another that we have."""
    if SSE in accept:
        return SSE
    return NDJSON if b"ndjson" in accept or b"jsonl" in accept else JSON


async def _begin(asked: WebRequest, reader: TopicReader, default: str) -> Positions:
    """Where the caller says. A browser that comes back asks with the same words, and says beside how far it was."""
    parameters: ReadParameters = asked.parameters
    reached = asked.header(b"last-event-id")
    if reached or parameters.time is None:
        place = default if parameters.offset is None else str(parameters.offset)
        return await reader.begin(reached or place, parameters.partition)
    if parameters.offset is not None:
        raise invalid("time", "give an offset or a time, not both")
    time_ms = parse_time_ms(str(parameters.time), asked.site.clock.wall_ms())
    return await reader.begin_at(time_ms, parameters.partition)


async def _tail(asked: WebRequest, reader: TopicReader, positions: Positions, kind: bytes) -> AsyncIterator[bytes]:
    """Messages as they come, until the caller goes or the gateway is drained; a failure is the last that is told."""
    parameters: ReadParameters = asked.parameters
    limits = ReadLimits(parameters.max_messages, parameters.max_bytes, STREAM_WAIT_S)
    read = reader.follow if parameters.partition is None else reader.read
    write = _sse if kind is SSE else _lines
    if kind is SSE:
        place = place_text(positions, alone=parameters.partition is not None)
        yield b"id: %b\n\n" % place.encode()  # Nothing is lost to who comes back before the first event.
    try:
        while (reading := await asked.site.draining.waiting(read(positions, limits))) is not None:
            part = write(reading.messages, positions, parameters)
            asked.share.take(len(part))
            asked.site.traffic.events_read += len(reading.messages)
            yield part
            asked.share.give_back(len(part))
            positions = reading.positions
    except MillstreamError as error:
        problem = encode(problem_of(error))
        yield b"event: error\ndata: %b\n\n" % problem if kind is SSE else b'{"error":%b}\n' % problem


def _lines(messages: Sequence[Message], positions: Positions, parameters: ReadParameters) -> bytes:
    """A line each; an empty one as a sign of life."""
    return b"".join(encode(shown(message, parameters.format)) + b"\n" for message in messages) or b"\n"


def _sse(messages: Sequence[Message], positions: Positions, parameters: ReadParameters) -> bytes:
    """An event each, whose id is the place to go on from: a browser that lost the connection gives it by itself."""
    places = dict(positions)
    parts = []
    for message in messages:
        places[message.partition] = message.offset + 1
        place = place_text(places, alone=parameters.partition is not None)
        parts.append(b"id: %b\ndata: %b\n\n" % (place.encode(), encode(shown(message, parameters.format))))
    return b"".join(parts) or b": still here\n\n"


GET_EVENTS = WebOperation(
    "GET",
    "/events",
    "getEvents",
    "Read events, and wait for the first",
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
    ),
    media=("application/x-ndjson", "text/event-stream"),
    examples=(Example("As one of a group", "/events?topic=orders&group=billing&consumer=a&wait=2&max_messages=10"),),
    details="""\
The answer has what is there from `offset` on, and `next`: the `offset` of the next request. With nothing there, it is
waited for the first to come; a place beyond the end waits likewise. Without an `offset` reading begins at the
beginning, and a live tail at the end. With `group` and `consumer` the group keeps the place: what is handed out is
committed by `POST /offset`, or by the next request with `auto_commit`; what was not comes again.

`Accept: application/x-ndjson` gives a line for each event, for ever with `follow`; `Accept: text/event-stream` gives
server-sent events, whose ids are places to go on from.""",
)
