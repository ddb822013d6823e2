"""DeleteTopics: deletes topics by name, and from version 6 on also by id."""

from collections import Counter
from typing import Any

from millstream.broker.dispatch.capabilities import TopicDeletion
from millstream.broker.dispatch.open_changes import CHANGED_TOPICS
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.response_rows import encode_rows
from millstream.model.authorization import Access
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import TopicId
from millstream.model.names import INTERNAL_PREFIX, NO_TOPIC_ID
from millstream.wire.messages import read_request, write_response

API = "DeleteTopics"
_STATES_FROM = 6


class DeleteTopicsHandler:
    def __init__(self, topics: TopicDeletion) -> None:
        self._topics = topics

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        return Work(self._answer(request.version, fields, request.access), change=CHANGED_TOPICS)

    async def _answer(self, version: int, fields: dict[str, Any], access: Access) -> bytes:
        if version >= _STATES_FROM:
            wanted = [(topic["name"], topic["topic_id"]) for topic in fields["topics"]]
        else:
            wanted = [(name, NO_TOPIC_ID) for name in fields["topic_names"]]
        rows = []
        for (name, topic_id), times in Counter(wanted).items():
            row: dict[str, Any] = {"name": name, "topic_id": topic_id}
            try:
                if times > 1:
                    raise MillstreamError(ErrorCode.INVALID_REQUEST, f"the request names the topic {times} times")
                found = self._name(name, topic_id)
                access.check_topic(found, is_named=name is not None)
                topic = await self._topics.delete(_deletable(found))
                row |= {"name": topic.name, "topic_id": topic.topic_id}
            except MillstreamError as error:
                row |= {"error_code": error.code.number, "error_message": error.detail}
            rows.append(row)
        return write_response(API, version, {"responses": await encode_rows(API, version, ("responses",), rows)})

    def _name(self, name: str | None, topic_id: TopicId) -> str:
        if name is not None:
            if topic_id != NO_TOPIC_ID:
                raise MillstreamError(
                    ErrorCode.INVALID_REQUEST, "the request gives both a name and an id; give only one of them"
                )
            return name
        if topic_id == NO_TOPIC_ID:
            raise MillstreamError(ErrorCode.INVALID_REQUEST, "the request gives neither a name nor an id")
        topic = self._topics.image.topic_by_id(topic_id)
        if topic is None:
            raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_ID, f"topic id {topic_id} does not exist")
        return topic.name


def _deletable(name: str) -> str:
    """Return the name, unless the topic is internal. Kafka deletes such topics, and with them all committed offsets."""
    if name.startswith(INTERNAL_PREFIX):
        raise MillstreamError(
            ErrorCode.TOPIC_DELETION_DISABLED,
            f"topic {name!r} is internal and cannot be deleted; delete the groups instead",
        )
    return name
