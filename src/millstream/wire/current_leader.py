"""Encodes and decodes the tagged fields of Produce and Fetch responses that name a partition's leader (KIP-951).

A client that has asked the wrong broker can continue with the leader at once, without a Metadata request. The leader's
id and epoch are a tagged field of the partition. Its address is in a tagged field of the response, so the parsers add
the addresses after the whole response is read.
"""

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import NamedTuple

from millstream.model.broker_endpoint import BrokerEndpoint
from millstream.model.ids import BrokerId
from millstream.wire.frame_reader import INT32, FrameReader
from millstream.wire.malformed import MalformedMessageError
from millstream.wire.value_writers import put_string, unsigned_varint

NODE_ENDPOINTS_TAG = 0
"""Tag of a response: the addresses of the leaders that its partitions name."""

_LEADER = Struct(">iix")  # leader id, leader epoch, no tags
_ENDPOINT_BYTES_MIN = 11


class CurrentLeader(NamedTuple):
    """The leader of a partition; `endpoint` is None while its address is unknown."""

    leader_id: int
    leader_epoch: int
    endpoint: BrokerEndpoint | None = None


def put_current_leader(out: bytearray, tag: int, leader: CurrentLeader) -> None:
    """Append the tagged field of a partition. The caller writes the count of tagged fields before it."""
    out += unsigned_varint(tag) + unsigned_varint(_LEADER.size) + _LEADER.pack(leader.leader_id, leader.leader_epoch)


def put_node_endpoints(out: bytearray, leaders: Iterable[CurrentLeader]) -> None:
    """Append all tagged fields of a response: the address of each leader, once."""
    endpoints = {leader.endpoint: None for leader in leaders if leader.endpoint is not None}
    if not endpoints:
        out.append(0)
        return
    field = bytearray(unsigned_varint(len(endpoints) + 1))
    for node_id, host, port, rack in endpoints:
        field += INT32.pack(node_id)
        put_string(field, host, compact=True)
        field += INT32.pack(port)
        put_string(field, rack, compact=True)
        field.append(0)
    out.append(1)
    out += unsigned_varint(NODE_ENDPOINTS_TAG) + unsigned_varint(len(field)) + field


def read_current_leader(source: FrameReader, tag: int) -> CurrentLeader | None:
    """Read all tagged fields of a partition; returns its leader, still without an address, or None."""
    leader = None
    for found, _end in source.tags():
        if found == tag:
            leader = take_current_leader(source)
    return leader


def take_current_leader(source: FrameReader) -> CurrentLeader:
    """Read the value of the tagged field of a partition."""
    leader = CurrentLeader(source.int32(), source.int32())
    source.skip_tags()
    return leader


def read_node_endpoints(source: FrameReader) -> dict[int, BrokerEndpoint]:
    """Read all tagged fields of a response; returns the addresses of leaders by broker id."""
    endpoints: dict[int, BrokerEndpoint] = {}
    for tag, _end in source.tags():
        if tag == NODE_ENDPOINTS_TAG:
            for _ in range(source.count(True, _ENDPOINT_BYTES_MIN)):
                endpoint = _read_endpoint(source)
                endpoints[endpoint.node_id] = endpoint
    return endpoints


def _read_endpoint(source: FrameReader) -> BrokerEndpoint:
    node_id, host, port, rack = source.int32(), source.string(True), source.int32(), source.string(True)
    if host is None:
        raise MalformedMessageError("a broker's host may not be null")
    source.skip_tags()
    return BrokerEndpoint(BrokerId(node_id), host, port, rack)


def with_endpoint(leader: CurrentLeader | None, endpoints: Mapping[int, BrokerEndpoint]) -> CurrentLeader | None:
    """Return the leader with its address, if the response names it."""
    return None if leader is None else leader._replace(endpoint=endpoints.get(leader.leader_id))
