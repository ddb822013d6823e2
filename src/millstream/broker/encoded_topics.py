"""Caches the encoded topics of Metadata responses and patches them when the cluster image changes.

There is one encoding of a topic for each form. A changed topic is encoded again in the forms that are requested again.
Of a topic with many partitions, only the `PATCH` partitions around the changed one are encoded again. A broker that
joins or leaves costs the same for the partitions that have a replica on it. For requests for all topics, there is a
list of the encodings in each form. A change of the image replaces only the entries of the changed topics.

Beyond its maximum size the cache drops topics: of the form that was encoded least recently, the topic that was encoded
least recently.

Invariants: the cache has at most `KEPT_BYTES_MAX` bytes. It matches the image of the last `catch_up`. A topic that is
encoded in slices is not cached if it changes meanwhile, or if a broker joins or leaves. A list has one entry for each
topic of that image: the cached encoding, or b"" for a topic that is not cached.
"""

from bisect import bisect_left
from collections.abc import Collection, Container, Generator, Iterable, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from millstream.catalog.catalog import Placement
from millstream.catalog.cluster_image import ClusterImage, ClusterTopic
from millstream.model.errors import ErrorCode
from millstream.wire.messages import kept_element_writer
from millstream.wire.schema_writers import EncodedArray

API = "Metadata"
SLICE = 1_000
"""Partitions that are encoded before the event loop runs other work."""

PATCH = 100
"""Partitions of a large topic that are encoded again when one of them changes."""

RELISTED_MAX = 1_000
"""Changed topics of one `catch_up` from which on the lists of all topics are made again."""

KEPT_BYTES_MAX = 12 * 1024 * 1024
"""Maximum size of the cache."""

_NO_LEADER = -1

Slices = Generator[None, None, bytes]
"""A generator that returns the encoded bytes and yields after each slice."""


class TopicForm(NamedTuple):
    """The parameters of an encoding, besides the topic itself."""

    version: int
    operations: int | None
    """The bits of the operations that the principal may perform on the topic, if the request asks for them."""


class _Piece(NamedTuple):
    """The encoded rows of `PATCH` consecutive partitions."""

    placements: tuple[Placement, ...]
    encoded: bytes


class _AllTopics(NamedTuple):
    """The encodings of all topics in one form, in the order of their names."""

    parts: list[bytes]
    missing: dict[str, None]
    """The names of the topics whose part is b""."""

    def put(self, at: int, name: str, encoded: bytes) -> None:
        self.parts[at] = encoded
        if encoded:
            self.missing.pop(name, None)
        else:
            self.missing[name] = None


class EncodedTopics:
    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._topics: dict[TopicForm, dict[str, bytes]] = {}
        """Encoded topics, those encoded last at the end, also of the forms. b"" for a topic of which only pieces are
        left."""
        self._pieces: dict[tuple[TopicForm, str], list[_Piece]] = {}
        """The encoded partitions of large topics."""
        self._all: dict[TopicForm, _AllTopics] = {}
        self._names_by_node: dict[int, set[str]] = {}
        """The topics that were encoded with a replica on a broker, by its id. Some of them may be gone."""
        self._kept_bytes = 0
        self._leaderless: dict[str, int] = {}
        """The number of partitions whose leader is offline, of the encoded topics that have such partitions."""

    def catch_up(self, image: ClusterImage) -> None:
        """Drop cached topics and pieces that differ in this image, and continue with this image."""
        assert image.version >= self._image.version, "the image version only increases"
        changed = list(image.names_changed_since(self._image))
        for name in changed:
            self._forget_topic(name, is_deleted=image.topic(name) is None)
        for node in image.brokers.keys() ^ self._image.brokers.keys():
            self._forget_replicas(node)
        if image.names is not self._image.names:
            self._list_again(image, changed)
        self._image = image

    def _list_again(self, image: ClusterImage, changed: Sequence[str]) -> None:
        """Remove deleted topics from the lists of all topics, and insert new ones."""
        if len(changed) > RELISTED_MAX:
            self._all.clear()
        if not self._all:
            return
        before = self._image
        deleted = sorted((_position(before, name), name) for name in changed if image.topic(name) is None)
        created = sorted((_position(image, name), name) for name in changed if before.topic(name) is None)
        for parts, missing in self._all.values():
            for at, name in reversed(deleted):
                del parts[at]
                missing.pop(name, None)
            for at, name in created:
                parts.insert(at, b"")
                missing[name] = None
            assert len(parts) == len(image.names), "a list has one entry for each topic"

    def leaderless(self, topics: Iterable[str] | None = None) -> int:
        """Return the number of errors in the encodings of these topics, or of all topics. Usually there are none.

        The encodings are kept, so their errors are not counted when they are encoded.
        """
        if not self._leaderless:
            return 0
        return sum(self._leaderless.values() if topics is None else (self._leaderless.get(name, 0) for name in topics))

    def kept(self, form: TopicForm, name: str) -> bytes:
        """Return the cached encoding of a topic, or empty bytes if it is not cached."""
        topics = self._topics.get(form)
        return topics.get(name, b"") if topics is not None else b""

    def encode(self, form: TopicForm, topic: ClusterTopic) -> Slices:
        """Encode a topic of the current image and cache it."""
        brokers = self._image.brokers
        pieces: list[_Piece] = []
        if topic.partitions <= PATCH:
            rows = _encode_rows(form, topic.placements, brokers.keys())
        else:
            yield from self._encode_pieces(form, topic, pieces)
            rows = b"".join(piece.encoded for piece in pieces)
        encoded = _encode_topic(form, topic, rows)
        if self._image.topic(topic.name) is topic and self._image.brokers.keys() == brokers.keys():
            if leaderless := sum(placement.leader not in brokers for placement in topic.placements):
                self._leaderless[topic.name] = leaderless
            self._keep(form, topic, encoded, pieces)
        return encoded

    def encode_all(self, form: TopicForm) -> Generator[None, None, list[bytes]]:
        """Return the encodings of all topics of the current image, by name."""
        image, listed = self._image, self._all.get(form)
        if listed is None:
            parts = list(map(self._topics.get(form, {}).get, image.names, repeat(b"")))
            missing = dict.fromkeys(name for name, part in zip(image.names, parts, strict=True) if not part)
            listed = self._all[form] = _AllTopics(parts, missing)
        parts = listed.parts.copy()
        done = 0
        for name in sorted(listed.missing):  # The order of hashes differs between processes.
            topic = image.topic(name)
            assert topic is not None, "an image finds every topic that it lists"
            part = self.kept(form, topic.name)  # Another request may have encoded it meanwhile.
            if not part:
                part = yield from self.encode(form, topic)
                done += topic.partitions
            parts[_position(image, name)] = part
            if done >= SLICE:
                done = 0
                yield
        return parts

    def _encode_pieces(self, form: TopicForm, topic: ClusterTopic, pieces: list[_Piece]) -> Generator[None, None, None]:
        """Append the pieces of a large topic to `pieces`, from the cache where possible."""
        nodes, kept = self._image.brokers.keys(), self._pieces.get((form, topic.name), [])
        done = 0
        for at, start in enumerate(range(0, topic.partitions, PATCH)):
            placements = topic.placements[start : start + PATCH]
            if at < len(kept) and kept[at].placements == placements:
                pieces.append(kept[at])
                continue
            pieces.append(_Piece(placements, _encode_rows(form, placements, nodes)))
            done += len(placements)
            if done >= SLICE:
                done = 0
                yield

    def _keep(self, form: TopicForm, topic: ClusterTopic, encoded: bytes, pieces: list[_Piece]) -> None:
        name = topic.name
        self._forget_encoded(form, name)
        size = len(encoded) + _size(pieces)
        if size > KEPT_BYTES_MAX:
            return
        self._topics[form] = self._topics.pop(form, {})
        while self._kept_bytes + size > KEPT_BYTES_MAX:
            self._evict()
        self._kept_bytes += size
        assert self._kept_bytes <= KEPT_BYTES_MAX, "the cache stays within its maximum size"
        self._topics.setdefault(form, {})[name] = encoded
        self._list(form, name, encoded)
        for node in {node for placement in topic.placements for node in placement.replicas}:
            self._names_by_node.setdefault(node, set()).add(name)
        if pieces:
            self._pieces[form, name] = pieces

    def _evict(self) -> None:
        form, topics = next(iter(self._topics.items()))
        if topics:
            self._forget_encoded(form, next(iter(topics)))
        else:
            del self._topics[form]
            self._all.pop(form, None)

    def _forget_encoded(self, form: TopicForm, name: str) -> None:
        if encoded := self._topics.get(form, {}).pop(name, b""):
            self._kept_bytes -= len(encoded)
            self._list(form, name, b"")
        self._kept_bytes -= _size(self._pieces.pop((form, name), []))

    def _list(self, form: TopicForm, name: str, encoded: bytes) -> None:
        """Replace the entry of a topic in the list of all topics, if there is one."""
        listed = self._all.get(form)
        if listed is not None:
            listed.put(_position(self._image, name), name, encoded)

    def _forget_topic(self, name: str, *, is_deleted: bool) -> None:
        self._leaderless.pop(name, None)
        for form, topics in self._topics.items():
            if is_deleted:
                self._forget_encoded(form, name)
            elif encoded := topics.get(name):
                self._kept_bytes -= len(encoded)
                topics[name] = b""  # Its pieces are evicted with it.
                self._list(form, name, b"")
        if is_deleted:
            for names in self._names_by_node.values():
                names.discard(name)

    def _forget_replicas(self, node: int) -> None:
        """Drop the pieces of partitions with a replica on a broker that has joined or left."""
        for name in self._names_by_node.pop(node, ()):
            self._forget_topic(name, is_deleted=False)
            for form in self._topics:
                pieces = self._pieces.get((form, name), [])
                kept = [_NO_PIECE if _has_replica(piece.placements, (node,)) else piece for piece in pieces]
                if kept:
                    self._kept_bytes -= _size(pieces) - _size(kept)
                    self._pieces[form, name] = kept


_NO_PIECE = _Piece((), b"")


def _position(image: ClusterImage, name: str) -> int:
    """Return the position of a topic of the image in its names."""
    at = bisect_left(image.names, name)
    assert image.names[at] == name, "the names of an image are sorted"
    return at


def _size(pieces: list[_Piece]) -> int:
    return sum(len(piece.encoded) for piece in pieces)


def _has_replica(placements: Sequence[Placement], nodes: Collection[int]) -> bool:
    """True if one of the partitions has a replica on one of the brokers `nodes`."""
    return any(node in nodes for placement in placements for node in placement.replicas)


def _encode_rows(form: TopicForm, placements: Sequence[Placement], nodes: Container[int]) -> bytes:
    """Encode the rows of partitions. `nodes` are the reachable brokers."""
    write = kept_element_writer(API, form.version, "topics", "partitions")
    out = bytearray()
    for placement in placements:
        write(out, placement_row(placement, nodes))
    return bytes(out)


def placement_row(placement: Placement, nodes: Container[int]) -> dict[str, Any]:
    """Return the fields of a partition in Kafka's APIs. Replicas on brokers other than `nodes` are offline."""
    key, leader, leader_epoch, _, replicas, in_sync = placement
    row: dict[str, Any] = {
        "partition_index": key.partition,
        "leader_id": leader,
        "leader_epoch": leader_epoch,
        "replica_nodes": replicas,
        "isr_nodes": in_sync,
    }
    if leader not in nodes:
        row |= {"leader_id": _NO_LEADER, "error_code": ErrorCode.LEADER_NOT_AVAILABLE.number}
    if offline := [node for node in replicas if node not in nodes]:
        row["offline_replicas"] = offline
    return row


def _encode_topic(form: TopicForm, topic: ClusterTopic, partitions: bytes) -> bytes:
    row: dict[str, Any] = {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": EncodedArray(topic.partitions, partitions),
    }
    if form.operations is not None:
        row["topic_authorized_operations"] = form.operations
    out = bytearray()
    kept_element_writer(API, form.version, "topics")(out, row)
    return bytes(out)
