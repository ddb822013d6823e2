"""Encodes and decodes messages by name and version, for handlers and clients.

A message is a dictionary with the fields of its schema in snake case. Readers and writers are compiled at first use.
Writers of responses count the error codes that they write (see `millstream.wire.error_counts`).
"""

from functools import cache

from millstream.model.limits import PARTITIONS_PER_TOPIC_MAX
from millstream.wire.error_counts import CountError, error_counter
from millstream.wire.frame_reader import INT16, FrameReader
from millstream.wire.malformed import MalformedMessageError
from millstream.wire.schema import load
from millstream.wire.schema_readers import Fields, Read, compile_reader
from millstream.wire.schema_writers import Write, compile_element_writer, compile_writer

ELEMENTS_MAX = PARTITIONS_PER_TOPIC_MAX + 2_000
"""Maximum array elements of a request: enough for all partitions of the largest topic, or for many topics. Decoding
them takes about ten milliseconds and blocks the event loop. Clients with more elements send several requests."""

_RESPONSE = "Response"

ANSWER_ELEMENTS_MAX = 5_000_000
"""Maximum array elements that a client accepts in a response, since a cluster may have many partitions."""


@cache
def _reader(name: str, version: int) -> Read:
    return compile_reader(load(name), version)


@cache
def _writer(name: str, version: int) -> Write:
    return compile_writer(load(name), version, _counter_of(name))


def _counter_of(name: str) -> CountError | None:
    return error_counter(name.removesuffix(_RESPONSE)) if name.endswith(_RESPONSE) else None


@cache
def response_element_writer(api: str, version: int, *path: str) -> Write:
    """Return a writer for one element of an array in a response. Its output can be used in an `EncodedArray`."""
    return compile_element_writer(load(api + _RESPONSE), path, version, error_counter(api))


@cache
def kept_element_writer(api: str, version: int, *path: str) -> Write:
    """Return such a writer for elements that are kept and sent several times. It does not count their errors."""
    return compile_element_writer(load(api + _RESPONSE), path, version)


def write_kept_response(api: str, version: int, fields: Fields) -> bytes:
    """Encode the body of a response that is kept and sent several times. Its errors are not counted."""
    out = bytearray()
    compile_writer(load(api + _RESPONSE), version)(out, fields)
    return bytes(out)


@cache
def is_flexible(api: str, version: int) -> bool:
    """True if this version of an API has compact lengths and tags, also in its headers."""
    return version in load(f"{api}Request").flexible


@cache
def key_of(api: str) -> int:
    """Return the key of an API on the wire."""
    return load(f"{api}Request").key


@cache
def response_fields(api: str, version: int, *path: str) -> frozenset[str]:
    """Return the field names of a response version, at its top level or in the rows of the array at `path`."""
    fields = load(f"{api}Response").fields
    for name in path:
        fields = next(field.fields for field in fields if field.name == name)
    return frozenset(field.name for field in fields if version in field.versions)


def read_request(
    api: str, version: int, frame: memoryview, position: int, *, elements_max: int = ELEMENTS_MAX
) -> Fields:
    """Decode the request body at `position`. Raises MalformedMessageError if it is invalid.

    Bytes after the body are ignored, as in Kafka: librdkafka sends three extra bytes when it asks for all topics.
    """
    fields: Fields = _reader(f"{api}Request", version)(FrameReader(frame, position, elements_max=elements_max))
    return fields


def write_request(api: str, version: int, fields: Fields) -> bytes:
    """Encode the body of a request."""
    return _write(f"{api}Request", version, fields)


def read_response(api: str, version: int, frame: memoryview, position: int) -> Fields:
    """Decode the response body at `position`. Raises MalformedMessageError unless it ends at the end of the frame."""
    source = FrameReader(frame, position, elements_max=ANSWER_ELEMENTS_MAX)
    fields: Fields = _reader(f"{api}Response", version)(source)
    source.finish()
    return fields


def write_response(api: str, version: int, fields: Fields) -> bytes:
    """Encode the body of a response."""
    return _write(f"{api}Response", version, fields)


def read_versioned(name: str, data: bytes | memoryview) -> Fields:
    """Decode a value that begins with its own version, such as records of internal topics and member metadata.

    A version newer than the schema is read as the newest version of the schema, and extra bytes are ignored. Raises
    MalformedMessageError for a version older than the schema, and for invalid data.
    """
    frame = memoryview(data)
    source = FrameReader(frame, 0, elements_max=ANSWER_ELEMENTS_MAX)
    versions = load(name).versions
    version = min(source.int16(), versions.last)
    if version < versions.first:
        raise MalformedMessageError(f"version {version} of {name} is older than the supported versions")
    fields: Fields = _reader(name, version)(source)
    return fields


def write_versioned(name: str, version: int, fields: Fields) -> bytes:
    """Encode a value that begins with its own version."""
    out = bytearray(INT16.pack(version))
    _writer(name, version)(out, fields)
    return bytes(out)


def _write(name: str, version: int, fields: Fields) -> bytes:
    out = bytearray()
    _writer(name, version)(out, fields)
    return bytes(out)
