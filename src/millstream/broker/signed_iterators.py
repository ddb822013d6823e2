"""Signs iterators for clients and adds the address of the server that reads them.

The signed form is a version, the iterator's fields, and an HMAC over both. All brokers of a cluster take the key from
the catalog, so every broker can verify an iterator of any other. The address is sent beside the iterator and is not
signed. It is a hint: it becomes outdated when the partition's leader changes, and the iterator does not.
"""

import hmac
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import asdict

from millstream.broker.dispatch.capabilities import ClusterNode
from millstream.broker.group_requests import GroupCoordination
from millstream.groups.iterators.iterator import Iterator
from millstream.groups.iterators.served_iterators import ServedIterators
from millstream.groups.responses import GivenIterator
from millstream.model.authorization import Access
from millstream.model.broker_endpoint import BrokerEndpoint
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import TopicId
from millstream.wire.malformed import MalformedMessageError
from millstream.wire.messages import read_versioned, write_versioned
from millstream.wire.schema_readers import Fields

SECRET = "iterators"
"""The name of the key in the catalog."""

TOKEN_BYTES_MAX = 4_096
_DIGEST = "sha256"
_DIGEST_BYTES = 32
_VERSION = 0


class IteratorSigner:
    """Signs iterators and verifies signed ones."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def sign(self, iterator: Iterator) -> bytes:
        body = write_versioned("IteratorToken", _VERSION, asdict(iterator))
        return body + self._digest(body)

    def open(self, token: bytes) -> Iterator:
        """Return the iterator of a signed token. Raises INVALID_ITERATOR for any other token.

        The comparison takes constant time, so its duration reveals nothing about the key.
        """
        body, digest = token[:-_DIGEST_BYTES], token[-_DIGEST_BYTES:]
        if len(token) > TOKEN_BYTES_MAX or not hmac.compare_digest(digest, self._digest(body)):
            raise MillstreamError(ErrorCode.INVALID_ITERATOR)
        try:
            fields = read_versioned("IteratorToken", body)
        except MalformedMessageError as error:
            raise MillstreamError(ErrorCode.INVALID_ITERATOR, f"a newer broker signed it: {error.detail}") from error
        return Iterator(**(fields | {"topic_id": bytes(fields["topic_id"])}))

    def _digest(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, _DIGEST)


def open_allowed(signer: IteratorSigner, fields: Fields, access: Access) -> Iterator:
    """Return the iterator of a request of its client. Raises INVALID_ITERATOR, or the error of a missing right."""
    iterator = signer.open(bytes(fields["iterator"]))
    access.check_group(fields["group_id"])
    access.check_topic(iterator.topic)
    return iterator


class IteratorServing(Struct, frozen=True):
    """The signer and the served iterators of a broker."""

    signer: IteratorSigner
    served: ServedIterators


def given_fields(given: GivenIterator, signer: IteratorSigner | None, cluster: ClusterNode) -> Mapping[str, Any]:
    """Return the fields of an iterator in a response, with the leader of its partition.

    Without `signer` the signed iterator itself is left out.
    """
    iterator = given.iterator
    server = _server(iterator, cluster)
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
        "iterator": signer.sign(iterator) if signer is not None else None,
        "delivered": given.delivered,
    }


def _server(iterator: Iterator, cluster: ClusterNode) -> BrokerEndpoint:
    """Return the partition's leader, or this broker while the leader is not registered: it then returns the error."""
    image = cluster.image
    placement = image.placement(TopicId(UUID(bytes=iterator.topic_id)), iterator.partition)
    leader = image.brokers.get(placement.leader) if placement is not None else None
    return leader or image.brokers[cluster.node_id]


def error_fields(error: ErrorCode, detail: str) -> dict[str, Any]:
    """Return the error fields of an iterator response."""
    is_error = error is not ErrorCode.NONE
    return {"error_code": error.number, "error_message": (detail or error.meaning) if is_error else None}


class IteratorHandler:
    """Base of the handlers that return signed iterators from the coordinator."""

    def __init__(self, groups: GroupCoordination, signer: IteratorSigner, cluster: ClusterNode) -> None:
        self._groups = groups
        self._signer = signer
        self._cluster = cluster
