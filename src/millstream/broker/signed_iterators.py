"""Iterators as clients see them: signed, and with the address of the server that they are read from.

An iterator on the wire is a version, its fields, and an HMAC over both, under a key that all brokers of a cluster have
from the catalog: so each of them can tell whether one of them made it. The address travels beside it and is not signed:
it is a hint, and goes out of date with the partition's leader, while the iterator does not.
"""

import hmac
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from millstream.broker.dispatch.capabilities import BrokerIdentity
from millstream.broker.group_requests import GroupCoordination
from millstream.groups.iterators.iterator import Iterator
from millstream.groups.iterators.served_iterators import ServedIterators
from millstream.groups.responses import GivenIterator
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.wire.malformed import MalformedMessageError
from millstream.wire.messages import read_versioned, write_versioned

SECRET = "iterators"
"""The name of the key in the catalog."""

TOKEN_BYTES_MAX = 4_096
_DIGEST = "sha256"
_DIGEST_BYTES = 32
_VERSION = 0


class IteratorSigner:
    """Signs iterators, and knows those that were."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def sign(self, iterator: Iterator) -> bytes:
        body = write_versioned("IteratorToken", _VERSION, asdict(iterator))
        return body + self._digest(body)

    def open(self, token: bytes) -> Iterator:
        """What was signed; INVALID_ITERATOR for anything else. How long that takes tells nothing of the key."""
        body, digest = token[:-_DIGEST_BYTES], token[-_DIGEST_BYTES:]
        if len(token) > TOKEN_BYTES_MAX or not hmac.compare_digest(digest, self._digest(body)):
            raise MillstreamError(ErrorCode.INVALID_ITERATOR)
        try:
            fields = read_versioned("IteratorToken", body)
        except MalformedMessageError as error:
            raise MillstreamError(ErrorCode.INVALID_ITERATOR, f"a newer broker made it: {error.detail}") from error
        return Iterator(**(fields | {"topic_id": bytes(fields["topic_id"])}))

    def _digest(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, _DIGEST)


class IteratorServing(Struct, frozen=True):
    """What a broker needs for iterators beside its groups and its partitions."""

    seal: IteratorSigner
    served: ServedIterators


def given_fields(given: GivenIterator, seal: IteratorSigner | None, server: BrokerIdentity) -> Mapping[str, Any]:
    """The iterator as an answer tells it; without a seal only what it is, not the iterator itself."""
    iterator = given.iterator
    return {
        "client_id": iterator.client_id,
        "topic": iterator.topic,
        "partition": iterator.partition,
        "node_id": server.node_id,
        "host": server.host,
        "port": server.port,
        "offset": iterator.offset,
        "max_messages": iterator.messages_max,
        "generation": iterator.generation,
        "left_ms": given.left_ms,
        "iterator": seal.sign(iterator) if seal is not None else None,
        "handed": given.handed,
    }


def error_fields(error: ErrorCode, detail: str) -> dict[str, Any]:
    """What every answer about iterators begins with."""
    is_error = error is not ErrorCode.NONE
    return {"error_code": error.number, "error_message": (detail or error.meaning) if is_error else None}


class IteratorHandler:
    """What handlers have who ask the coordinator about iterators, and tell of those that it gives."""

    def __init__(self, groups: GroupCoordination, seal: IteratorSigner, server: BrokerIdentity) -> None:
        self._groups = groups
        self._seal = seal
        self._server = server
