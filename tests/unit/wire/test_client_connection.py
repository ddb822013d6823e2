"""Tests the client's protocol core: decoded events, and errors when client and broker are out of step."""

from dataclasses import replace
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.wire.client_connection import (
    API_VERSIONS,
    Api,
    ApiRequest,
    ApiResponse,
    BrokerVersions,
    ConnectionCore,
    ConnectionState,
    FurtherFrame,
    ProtocolError,
    Ready,
    VersionRange,
)

METADATA = Api(3, "Metadata", 4, 12)


def greeting() -> ApiRequest[BrokerVersions]:
    """Return an ApiVersions request with a toy encoding: an error byte, then key, low and high as pairs of bytes."""

    def decode(version: int, frame: memoryview, start: int) -> BrokerVersions:
        error = int.from_bytes(frame[start : start + 2], "big")
        rows = bytes(frame[start + 2 :])
        if len(rows) % 3:
            raise ValueError("rows are cut short")
        triples = [rows[at : at + 3] for at in range(0, len(rows), 3)]
        return BrokerVersions(error, {key: VersionRange(low, high) for key, low, high in triples})

    return ApiRequest(API_VERSIONS, lambda version: [b"hello"], decode)


def question(body: bytes = b"?", *, answered: bool = True, api: Api = METADATA) -> ApiRequest[tuple[int, bytes]]:
    return ApiRequest(api, lambda version: [body], lambda version, frame, at: (version, bytes(frame[at:])), answered)


def framed(correlation_id: int, body: bytes) -> bytes:
    return pack(">ii", len(body) + 4, correlation_id) + body


def greeted(*, rows: bytes = bytes((3, 0, 8)), frame_bytes_max: int = 1000) -> ConnectionCore:
    """Return a core that knows the broker's versions."""
    core = ConnectionCore("me", greeting(), frame_bytes_max=frame_bytes_max)
    core.greet()
    core.take_outgoing()
    assert [type(event) for event in core.receive(framed(0, b"\0\0" + rows))] == [Ready]
    return core


def sent(core: ConnectionCore) -> bytes:
    return b"".join(bytes(piece) for piece in core.take_outgoing())


def test_api_versions_is_the_first_request() -> None:
    core = ConnectionCore("me", greeting())
    core.greet()
    assert sent(core) == pack(">ihhi", 18, 18, 4, 0) + b"\0\2me" + b"\0" + b"hello"
    assert core.state is ConnectionState.GREETING


def test_a_request_carries_key_version_correlation_and_client_id() -> None:
    core = greeted()
    assert core.send(question(b"body")) == 1
    assert sent(core) == pack(">ihhi", 16, 3, 8, 1) + b"\0\2me" + b"body"


def test_a_flexible_version_lengthens_both_headers_by_their_tags() -> None:
    core = greeted(rows=bytes((3, 0, 12)))
    core.send(question(b"body"))
    assert sent(core) == pack(">ihhi", 17, 3, 12, 1) + b"\0\2me\0" + b"body"
    unknown_tag = b"\1\5\3abc"
    assert core.receive(framed(1, unknown_tag + b"answer")) == [ApiResponse(1, (12, b"answer"))]


@given(st.data())
def test_responses_are_decoded_from_pieces_of_any_size(data: st.DataObject) -> None:
    core = greeted()
    stream = b""
    bodies = data.draw(st.lists(st.binary(max_size=40), max_size=5))
    for number, body in enumerate(bodies, 1):
        core.send(question())
        stream += framed(number, body)
    events = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        events += core.receive(stream[:size])
        stream = stream[size:]
    assert events == [ApiResponse(number, (8, body)) for number, body in enumerate(bodies, 1)]
    assert core.waiting == 0


@pytest.mark.parametrize(
    ("offered", "version"),
    [((0, 13), 12), ((4, 4), 4), ((0, 9), 9), ((12, 20), 12)],
)
def test_the_highest_common_version_is_used(offered: tuple[int, int], version: int) -> None:
    assert greeted(rows=bytes((3, *offered))).version_of(METADATA) == version


@pytest.mark.parametrize("rows", [bytes((3, 0, 3)), bytes((3, 13, 20)), bytes((4, 0, 9))])
def test_no_common_version_is_an_error_and_the_connection_continues(rows: bytes) -> None:
    core = greeted(rows=rows + bytes((5, 0, 0)))
    with pytest.raises(MillstreamError) as caught:
        core.send(question())
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert "Metadata" in caught.value.detail
    assert core.state is ConnectionState.READY
    assert core.waiting == 0


def test_an_older_broker_is_asked_again_in_a_version_that_it_supports() -> None:
    core = ConnectionCore("me", greeting())
    core.greet()
    core.take_outgoing()
    assert core.receive(framed(0, b"\0\x23" + bytes((18, 0, 2)))) == []
    assert sent(core) == pack(">ihhi", 17, 18, 2, 1) + b"\0\2me" + b"hello"
    assert core.receive(framed(1, b"\0\0" + bytes((3, 0, 8)))) == [Ready({3: VersionRange(0, 8)})]


def test_a_second_refusal_of_api_versions_closes_the_connection() -> None:
    core = ConnectionCore("me", greeting())
    core.greet()
    core.receive(framed(0, b"\0\x23"))
    with pytest.raises(MillstreamError, match="ApiVersions"):
        core.receive(framed(1, b"\0\x23"))
    assert core.state is ConnectionState.CLOSED


def test_a_refused_api_versions_raises_its_error() -> None:
    core = ConnectionCore("me", greeting())
    core.greet()
    with pytest.raises(MillstreamError) as caught:
        core.receive(framed(0, b"\0\x1f"))
    assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_nothing_is_sent_before_the_versions_are_known() -> None:
    core = ConnectionCore("me", greeting())
    core.greet()
    with pytest.raises(MillstreamError, match="greeting, not ready"):
        core.send(question())


def test_an_unexpected_correlation_id_closes_the_connection() -> None:
    core = greeted()
    core.send(question())
    core.send(question())
    with pytest.raises(ProtocolError, match=r"id 2, expected 1 \(Metadata\)"):
        core.receive(framed(2, b""))
    assert core.state is ConnectionState.CLOSED


def test_a_response_without_a_request_closes_the_connection() -> None:
    with pytest.raises(ProtocolError, match="no request is waiting"):
        greeted().receive(framed(7, b""))


@pytest.mark.parametrize("size", [-1, 0, 3, 1001, 2**31 - 1])
def test_an_invalid_size_closes_the_connection_without_allocating(size: int) -> None:
    core = greeted(frame_bytes_max=1000)
    core.send(question())
    with pytest.raises(ProtocolError, match=f"{size} bytes"):
        core.receive(pack(">i", size) + b"....")


def test_an_http_response_suggests_a_wrong_port() -> None:
    core = ConnectionCore("me", greeting())
    core.greet()
    with pytest.raises(ProtocolError, match="check that the port is a Kafka listener"):
        core.receive(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_a_malformed_response_closes_the_connection() -> None:
    core = ConnectionCore("me", greeting())
    core.greet()
    with pytest.raises(ProtocolError, match=r"ApiVersions \(version 4\): ValueError: rows are cut short"):
        core.receive(framed(0, b"\0\0\1"))
    assert core.receive(framed(1, b"")) == []


@pytest.mark.parametrize("header", [b"", b"\2\1", b"\1\5\x40", b"\xff\xff\xff\xff\xff\xff"])
def test_a_truncated_header_closes_the_connection(header: bytes) -> None:
    core = greeted(rows=bytes((3, 0, 12)))
    core.send(question())
    with pytest.raises(ProtocolError):
        core.receive(framed(1, header))


def test_a_too_large_request_is_refused_and_the_connection_continues() -> None:
    core = greeted(frame_bytes_max=100)
    with pytest.raises(MillstreamError) as caught:
        core.send(question(b"x" * 100))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert sent(core) == b""
    assert core.send(question()) == 1


def test_request_that_expects_no_response_is_not_counted_as_waiting() -> None:
    core = greeted()
    core.send(question(answered=False))
    core.send(question())
    assert core.waiting == 1
    assert core.receive(framed(2, b"!")) == [ApiResponse(2, (8, b"!"))]


def test_the_correlation_id_wraps_before_it_becomes_negative() -> None:
    core = greeted()
    core._next_id = 2**31 - 1
    assert [core.send(question()), core.send(question())] == [2**31 - 1, 0]


@given(st.binary(max_size=300))
def test_garbage_raises_a_known_error_or_waits_for_more_bytes(data: bytes) -> None:
    core = greeted()
    core.send(question())
    try:
        core.receive(data)
    except MillstreamError:
        assert core.state is ConnectionState.CLOSED


def standing(body: bytes = b"?") -> ApiRequest[tuple[int, bytes]]:
    return replace(question(body), stands=True)


def test_frames_of_a_streaming_request_arrive_between_other_responses() -> None:
    core = greeted()
    stands, first, second = core.send(standing()), core.send(question()), core.send(question())
    assert core.receive(framed(stands, b"answer")) == [ApiResponse(stands, (8, b"answer"))]
    frames = framed(stands, b"a") + framed(first, b"1") + framed(stands, b"b") + framed(second, b"2")
    assert core.receive(frames + framed(stands, b"c")) == [
        FurtherFrame(stands, (8, b"a")),
        ApiResponse(first, (8, b"1")),
        FurtherFrame(stands, (8, b"b")),
        ApiResponse(second, (8, b"2")),
        FurtherFrame(stands, (8, b"c")),
    ]


def test_a_streaming_request_is_answered_in_order() -> None:
    core = greeted()
    core.send(question())
    stands = core.send(standing())
    with pytest.raises(ProtocolError):
        core.receive(framed(stands, b"too early"))


def test_a_frame_of_an_ended_streaming_request_closes_the_connection() -> None:
    core = greeted()
    stands = core.send(standing())
    core.receive(framed(stands, b"answer"))
    core.forget(stands)
    with pytest.raises(ProtocolError):
        core.receive(framed(stands, b"too late"))


def test_the_correlation_id_of_a_streaming_request_is_not_reused() -> None:
    core = greeted()
    stands = core.send(standing())
    core.receive(framed(stands, b"answer"))
    core._next_id = 2**31 - 1
    assert [core.send(question()) for _ in range(3)] == [2**31 - 1, 0, stands + 1]
