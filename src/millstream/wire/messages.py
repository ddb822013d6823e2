"""Messages by name and version: what handlers and clients call.

A message is a dictionary of its schema's fields in snake case; readers and writers are compiled at first use.
"""

from functools import cache

from millstream.model.limits import PARTITIONS_PER_TOPIC_MAX
from millstream.wire.frame_reader import INT16, FrameReader
from millstream.wire.malformed import MalformedMessageError
from millstream.wire.schema import load
from millstream.wire.schema_readers import Fields, Read, compile_reader
from millstream.wire.schema_writers import Write, compile_element_writer, compile_writer

ELEMENTS_MAX = PARTITIONS_PER_TOPIC_MAX + 2_000
"""Array elements one request may have: all partitions of the largest topic, or many topics. Reading so many takes some
ten milliseconds, during which the event loop does nothing else; clients with more to ask for ask more than once."""

ANSWER_ELEMENTS_MAX = 5_000_000
"""Array elements a client accepts in an answer: a broker may have many partitions."""


@cache
def _reader(name: str, version: int) -> Read:
    return compile_reader(load(name), version)


@cache
def _writer(name: str, version: int) -> Write:
    return compile_writer(load(name), version)


@cache
def response_element_writer(api: str, version: int, *path: str) -> Write:
    """Writes one element of an array within a response, to be kept and used in an `EncodedArray`."""
    return compile_element_writer(load(f"{api}Response"), path, version)


@cache
def is_flexible(api: str, version: int) -> bool:
    """Whether this version of an API has compact lengths and tags, also in its headers."""
    return version in load(f"{api}Request").flexible


@cache
def key_of(api: str) -> int:
    """The API's number on the wire."""
    return load(f"{api}Request").key


@cache
def response_fields(api: str, version: int) -> frozenset[str]:
    """The names of the fields that this version's response has at its top."""
    return frozenset(field.name for field in load(f"{api}Response").fields if version in field.versions)


def read_request(api: str, version: int, frame: memoryview, position: int) -> Fields:
    """The request whose body begins at `position`; MalformedMessageError when the frame does not hold it.

    Bytes behind it are passed over, as Kafka does: librdkafka, asking for all topics, sends three too many.
    """
    fields: Fields = _reader(f"{api}Request", version)(FrameReader(frame, position, ELEMENTS_MAX))
    return fields


def write_request(api: str, version: int, fields: Fields) -> bytes:
    """A request's body."""
    return _write(f"{api}Request", version, fields)


def read_response(api: str, version: int, frame: memoryview, position: int) -> Fields:
    """The response whose body begins at `position`; MalformedMessageError unless it fills the frame exactly."""
    source = FrameReader(frame, position, ANSWER_ELEMENTS_MAX)
    fields: Fields = _reader(f"{api}Response", version)(source)
    source.finish()
    return fields


def write_response(api: str, version: int, fields: Fields) -> bytes:
    """A response's body."""
    return _write(f"{api}Response", version, fields)


def read_versioned(name: str, data: bytes | memoryview) -> Fields:
    """A value that begins with its own version, as records of internal topics and what members tell assignors do.

    A version newer than the schema is read as the newest it has, and what follows is passed over; one that is older
    than the schema, or data that does not hold it, is a MalformedMessageError.
    """
    frame = memoryview(data)
    source = FrameReader(frame, 0, ANSWER_ELEMENTS_MAX)
    versions = load(name).versions
    version = min(source.int16(), versions.last)
    if version < versions.first:
        raise MalformedMessageError(f"version {version} of {name} is not known")
    fields: Fields = _reader(name, version)(source)
    return fields


def write_versioned(name: str, version: int, fields: Fields) -> bytes:
    """A value that begins with its own version."""
    out = bytearray(INT16.pack(version))
    _writer(name, version)(out, fields)
    return bytes(out)


def _write(name: str, version: int, fields: Fields) -> bytes:
    out = bytearray()
    _writer(name, version)(out, fields)
    return bytes(out)
