"""Tests the start words of the gRPC contract: synonyms, their JSON names, and unknown values."""

import pytest
from google.protobuf import json_format

from millstream.gateway.grpc.message_conversion import edge_of
from millstream.gateway.grpc.v1 import events_pb2 as pb
from millstream.gateway.grpc.v1 import messages_pb2
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.start_words import BEGINNING, LATEST, START_WORDS, start_word


@pytest.mark.parametrize("word", START_WORDS)
def test_every_start_word_has_an_enum_name_that_json_accepts(word: str) -> None:
    request = json_format.Parse(f'{{"start": {{"edge": "EDGE_{word.upper()}"}}}}', messages_pb2.GetRequest())
    assert edge_of(request.start.edge, "start") == start_word(word)


@pytest.mark.parametrize(("name", "number"), [("NEAREST", 2), ("LATEST", 3), ("END", 3)])
def test_out_of_range_enum_has_a_value_for_every_position(name: str, number: int) -> None:
    assert messages_pb2.OutOfRange.Value(f"OUT_OF_RANGE_{name}") == number


def test_an_unset_edge_is_the_beginning_unless_the_call_has_another_default() -> None:
    assert edge_of(pb.EDGE_UNSPECIFIED, "start") == BEGINNING
    assert edge_of(pb.EDGE_UNSPECIFIED, "start", LATEST) == LATEST


def test_an_unknown_edge_is_refused_with_the_accepted_names() -> None:
    with pytest.raises(MillstreamError, match="EDGE_BEGINNING, EDGE_EARLIEST, EDGE_LATEST or EDGE_END") as caught:
        edge_of(99, "start")  # type: ignore[arg-type]
    assert caught.value.code is ErrorCode.INVALID_SETTING
