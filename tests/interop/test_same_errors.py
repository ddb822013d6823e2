"""Tests that Apache Kafka 4.3 and Millstream answer the same requests with the same errors.

DIFFERENCES lists intended differences with their reasons. A difference that does not exist any more fails the test.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from builders.requests import framed, request_frame
from interop.compared import groups, records, settings, topics
from interop.compared.cases import Case
from interop.compared.world import World
from interop.kafka_broker import KafkaBroker
from interop.wire import ask, converse, is_closed_after
from millstream.testing.real_broker import RealBroker

HOST = "127.0.0.1"
IDENTITY = ("name", "topic", "group_id", "key", "resource_name", "partition_index", "partition", "index")
CASES = [
    *topics.CREATED,
    *topics.GROWN,
    *topics.DELETED,
    *topics.METADATA,
    *settings.TOLD,
    *settings.CHANGED,
    *settings.OTHERS,
    *records.PRODUCED,
    *records.FETCHED,
    *records.OFFSETS,
    *records.PRODUCERS,
    *groups.JOINED,
    *groups.LIVED,
    *groups.COMMITTED,
    *groups.TOLD,
    *groups.FORGOTTEN,
    *groups.BEATEN,
]

_NEVER = "Kafka says that the topic is unknown, which clients try again; a name that cannot be will never be known"
DIFFERENCES: Mapping[str, str] = {
    "create one setting twice": "Kafka takes the last; which of the two was meant, nobody knows",
    "metadata of a topic that is made by asking": "Kafka makes it later, and lets the client ask again",
    "metadata of one topic twice": "here each row that was asked for gets its answer",
    "partitions after a place that is not there": "a topic deleted between two pages does not end the listing",
    "change by an unknown step": "Kafka fails with UNKNOWN_SERVER_ERROR",
    "produce to a name that cannot be": _NEVER,
    "produce to an empty name": _NEVER,
    "produce to one topic twice": "Kafka forgets the first of the two without a word; here both are answered",
    "produce with a negative epoch": "Kafka takes it; no producer that got its id from a broker has such an epoch",
    "fetch a name that cannot be": _NEVER,
    "offset in a name that cannot be": _NEVER,
    "trim a name that cannot be": _NEVER,
    "find the coordinator of no name": "Kafka finds it, and refuses whatever the group is asked for next",
}

BROKEN = {
    "an empty frame": framed(b""),
    "a frame of a negative size": b"\xff\xff\xff\xff",
    "a frame that is too large": b"\x7f\xff\xff\xff",
    "half a header": framed(b"\0\x03\0"),
    "an unknown request": framed(b"\x7f\x00\0\0\0\0\0\1\xff\xff"),
    "a negative request": framed(b"\xff\xf0\0\0\0\0\0\1\xff\xff"),
    "a version to come": framed(b"\0\x03\0\x63\0\0\0\1\xff\xff\0"),
    "a negative version": framed(b"\0\x03\xff\xff\0\0\0\1\xff\xff\0"),
    "a version that is over": framed(b"\0\x01\0\0\0\0\0\1\xff\xff\0"),
    "half a body": framed(request_frame("Metadata", 12, {"topics": [{"name": "plain"}]})[4:-8]),
    "a count beyond the frame": framed(b"\0\x03\0\1\0\0\0\1\xff\xff\x7f\xff\xff\xff"),
    "a negative count": framed(b"\0\x2a\0\1\0\0\0\1\xff\xff\xff\xff\xff\xf0"),
    "a name beyond the frame": framed(b"\0\x03\0\1\0\0\0\1\xff\xff\0\0\0\1\x7f\xff"),
}


class Pair(NamedTuple):
    kafka: World
    millstream: World


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory = tmp_path_factory.mktemp("same")
    with KafkaBroker(directory / "kafka") as kafka, RealBroker(directory / "data") as millstream:
        worlds = Pair(World(HOST, kafka.port), World(HOST, millstream.port))
        for world in worlds:
            world.prepare()
        yield worlds


def errors_of(answer: Any) -> Any:
    """Return all error codes with their subjects, in an order that does not depend on the broker."""
    if isinstance(answer, Mapping):
        found = {name: value for name, value in answer.items() if name.endswith("error_code")}
        inner = {name: errors_of(value) for name, value in answer.items() if isinstance(value, list | Mapping)}
        found |= {name: value for name, value in inner.items() if value}
        return found and {name: answer[name] for name in IDENTITY if name in answer} | found
    rows = [row for row in map(errors_of, answer) if row] if isinstance(answer, list) else []
    return sorted(rows, key=repr)


def outcome(world: World, case: Case) -> Any:
    try:
        return errors_of(ask(world.host, world.port, case.api, case.version, case.fields(world)))
    except EOFError:
        return "closed"


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_request_gets_the_same_error_as_from_kafka(pair: Pair, case: Case) -> None:
    for world in pair:
        world.stay_in_modern()
    kafka, millstream = (outcome(world, case) for world in pair)
    if case.name in DIFFERENCES:
        assert millstream != kafka, "this difference does not exist any more"
    else:
        assert millstream == kafka


@pytest.mark.parametrize("name", BROKEN)
def test_a_malformed_request_closes_the_connection_as_with_kafka(pair: Pair, name: str) -> None:
    kafka, millstream = (is_closed_after(world.host, world.port, BROKEN[name]) for world in pair)
    assert (kafka, millstream) == (True, True)


@pytest.mark.parametrize("version", [99, 32_767])
def test_an_unknown_api_versions_version_is_answered_in_version_0(pair: Pair, version: int) -> None:
    content = framed(b"\0\x12" + version.to_bytes(2, "big") + b"\0\0\0\1\xff\xff\0" + b"\1\1\0")
    kafka, millstream = (converse(world.host, world.port, content, ("ApiVersions", 0))[0] for world in pair)
    assert kafka["error_code"] == millstream["error_code"] == 35


def test_case_names_are_unique_and_differences_name_cases() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert not DIFFERENCES.keys() - {case.name for case in CASES}
