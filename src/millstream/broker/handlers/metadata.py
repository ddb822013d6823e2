"""Metadata: lists brokers, topics and partition leaders, and creates requested topics if auto-creation is on.

Most of the cost is the encoding of partitions, so encoded topics are cached (see `millstream.broker.encoded_topics`).
The response to "all topics" is cached until the cluster changes. Encoding runs in slices.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

from millstream.broker.dispatch.authorized_operations import cluster_operations, topic_operations
from millstream.broker.dispatch.capabilities import AutoCreate, ImageSource
from millstream.broker.dispatch.open_changes import CHANGED_TOPICS
from millstream.broker.dispatch.request import Answer, BrokerRequest, Result, Work
from millstream.broker.encoded_topics import API, SLICE, EncodedTopics, Slices, TopicForm
from millstream.catalog.cluster_image import ClusterImage, ClusterTopic
from millstream.model.authorization import FULL_ACCESS, Access
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import NO_TOPIC_ID, check_new_topic_name
from millstream.model.rights import Right
from millstream.wire.error_counts import count_errors
from millstream.wire.messages import read_request, response_element_writer, write_response
from millstream.wire.schema_writers import EncodedArray

KEPT_BYTES_MAX = 4 * 1024 * 1024
"""Maximum size of the cached responses to "all topics". The cached topics have a limit of their own."""

CREATED_MAX = 100
"""Maximum number of topics that one request creates. A client that needs more repeats the request."""

_ALL_WHEN_NULL_FROM = 1
_MAY_FORBID_CREATION_FROM = 4
_NULL_NAME_FROM = 12


class MetadataHandler:
    def __init__(self, cluster: ImageSource, auto_create: AutoCreate | None, default_partitions: int) -> None:
        """`auto_create` is None if Metadata requests must not create topics."""
        self._cluster = cluster
        self._auto_create = auto_create
        self._default_partitions = default_partitions
        self._image = cluster.image
        """The image that the caches match."""
        self._encoded = EncodedTopics(cluster.image)
        self._kept_answers: dict[tuple[TopicForm, int | None], bytes] = {}

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        access, wanted = request.access, fields["topics"]
        with_operations = fields["include_topic_authorized_operations"]
        form = TopicForm(request.version, topic_operations(FULL_ACCESS, "") if with_operations else None)
        operations = cluster_operations(access) if fields["include_cluster_authorized_operations"] else None
        is_all = wanted is None or (not wanted and request.version < _ALL_WHEN_NULL_FROM)
        if is_all and not access.is_limited:
            return self._all(form, operations)
        may_create = request.version < _MAY_FORBID_CREATION_FROM or fields["allow_auto_topic_creation"]
        missing = self._missing(wanted) if not is_all and may_create and self._auto_create is not None else []
        if access.is_limited:
            wanted = self._visible(None if is_all else wanted, missing, access)
            missing = [name for name in missing if access.allows(Right.TOPICS_WRITE, name)]
        slices = self._encode_named(form, operations, wanted, access)
        if missing:
            return Work(self._create_and_answer(slices, missing), change=CHANGED_TOPICS)
        return _at_once(slices)

    def _current(self) -> ClusterImage:
        """Return the current image, after updating the caches to it."""
        image = self._cluster.image
        if image is not self._image:
            self._encoded.catch_up(image)
            self._kept_answers.clear()
            self._image = image
        return image

    # All topics

    def _all(self, form: TopicForm, operations: int | None) -> Result:
        self._current()
        kept = self._kept_answers.get((form, operations))
        if kept is not None:
            _count_leaderless(self._encoded.leaderless())
            return kept
        return _at_once(self._encode_all(form, operations))

    def _encode_all(self, form: TopicForm, operations: int | None) -> Slices:
        image = self._current()
        answer = _whole(form, operations, image, (yield from self._encoded.encode_all(form)))
        _count_leaderless(self._encoded.leaderless())
        kept_bytes = sum(map(len, self._kept_answers.values()))
        if image is self._image and kept_bytes + len(answer) <= KEPT_BYTES_MAX:
            self._kept_answers[form, operations] = answer
        return answer

    # Named topics

    def _visible(
        self, wanted: list[dict[str, Any]] | None, missing: Collection[str], access: Access
    ) -> list[dict[str, Any]]:
        """Return the requested topics, or all topics that the request may see.

        A named topic that the request may not see, or may not create, is marked as refused.
        """
        image = self._cluster.image
        if wanted is None:
            return [{"name": name, "topic_id": NO_TOPIC_ID} for name in image.names if access.allows_topic(name)]

        def is_refused(each: dict[str, Any]) -> bool:
            name = each["name"]
            if each["topic_id"] != NO_TOPIC_ID:
                topic = image.topic_by_id(each["topic_id"])
                name = topic and topic.name
            if name is None:
                return False
            return not access.allows_topic(name) or (name in missing and not access.allows(Right.TOPICS_WRITE, name))

        return [{**each, "is_refused": is_refused(each)} for each in wanted]

    def _encode_named(
        self, form: TopicForm, operations: int | None, wanted: list[dict[str, Any]], access: Access
    ) -> Slices:
        image = self._current()
        parts: list[bytes] = []
        found: list[str] = []
        done = 0
        for each in wanted:
            topic, error = _find(image, each)
            if topic is not None:
                found.append(topic.name)
                of_topic = form
                if access.is_limited and form.operations is not None:
                    of_topic = form._replace(operations=topic_operations(access, topic.name))
                part = self._encoded.kept(of_topic, topic.name)
                if not part:
                    part = yield from self._encoded.encode(of_topic, topic)
                    done += topic.partitions
            else:
                part = _encode_missing(form, each, error)
                done += 1
            parts.append(part)
            if done >= SLICE:
                done = 0
                yield
        _count_leaderless(self._encoded.leaderless(found))
        return _whole(form, operations, image, parts)

    def _missing(self, wanted: list[dict[str, Any]]) -> list[str]:
        image = self._cluster.image
        names = []
        for each in wanted:
            if each["topic_id"] == NO_TOPIC_ID and _find(image, each) == (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                names.append(each["name"])
                if len(names) == CREATED_MAX:
                    break
        return names

    async def _create_and_answer(self, slices: Slices, missing: list[str]) -> Answer:
        assert self._auto_create is not None
        for name in missing:
            try:
                await self._auto_create.ensure(name, self._default_partitions)
            except MillstreamError:
                # The response reports the topic as unknown, and the client retries. The broker's log has the cause,
                # such as a full disk or too many partitions.
                continue
        return await _run(slices)


def _count_leaderless(partitions: int) -> None:
    """Count the errors of kept encodings that a response contains."""
    if partitions:
        count_errors(API, ErrorCode.LEADER_NOT_AVAILABLE.number, count=partitions)


def _find(image: ClusterImage, wanted: dict[str, Any]) -> tuple[ClusterTopic | None, ErrorCode]:
    topic_id, name = wanted["topic_id"], wanted["name"]
    if wanted.get("is_refused"):
        return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if topic_id != NO_TOPIC_ID:
        return image.topic_by_id(topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    if name is None:
        return None, ErrorCode.INVALID_TOPIC
    topic = image.topic(name)
    if topic is None:
        try:
            check_new_topic_name(name)
        except MillstreamError as error:
            return None, error.code
    return topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _whole(form: TopicForm, operations: int | None, image: ClusterImage, topics: Sequence[bytes]) -> bytes:
    answer: dict[str, Any] = {
        "brokers": [broker._asdict() for broker in image.brokers.values()],
        "cluster_id": image.cluster_id,
        "controller_id": image.controller_id,
        "topics": EncodedArray(len(topics), b"".join(topics)),
    }
    if operations is not None:
        answer["cluster_authorized_operations"] = operations
    return write_response(API, form.version, answer)


def _encode_missing(form: TopicForm, wanted: dict[str, Any], error: ErrorCode) -> bytes:
    name = wanted["name"]
    row = {"error_code": error.number, "name": name, "topic_id": wanted["topic_id"]}
    if name is None and form.version < _NULL_NAME_FROM:
        row["name"] = ""
    out = bytearray()
    response_element_writer(API, form.version, "topics")(out, row)
    return bytes(out)


def _at_once(slices: Slices) -> Result:
    """Return the response if it takes only one slice; otherwise work that yields to the event loop between slices."""
    try:
        next(slices)
    except StopIteration as stop:
        answer: bytes = stop.value
        return answer
    return Work(_run(slices))


async def _run(slices: Slices) -> bytes:
    while True:
        await asyncio.sleep(0)
        try:
            next(slices)
        except StopIteration as stop:
            answer: bytes = stop.value
            return answer
