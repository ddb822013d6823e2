"""Sends the group requests of handlers to the coordinator and encodes its answers."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from millstream.broker.dispatch.request import BrokerRequest, DeferredResponse
from millstream.catalog.cluster_image import ClusterImage, ClusterTopic
from millstream.groups.commands import ListGroups
from millstream.groups.responses import Answer, GroupList
from millstream.groups.runtime.coordinator import GroupCommand
from millstream.model.authorization import Access
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.wire.topic_ref import TopicRef

A = TypeVar("A", bound=Answer)


class GroupCoordination(Protocol):
    """The part of the group coordinator that handlers use."""

    async def ensure(self) -> None: ...

    def ask(self, key: str, command: GroupCommand, reply: Callable[[Answer], None]) -> Callable[[], None]: ...

    async def request(self, key: str, command: GroupCommand) -> Answer: ...

    async def list_groups(self, command: ListGroups) -> GroupList: ...


def find_topic(image: ClusterImage, topic: TopicRef, access: Access) -> ClusterTopic:
    """Return the topic that a request names.

    Raises TOPIC_AUTHORIZATION_FAILED if the request may not use it, and UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID
    if it does not exist.
    """
    if isinstance(topic, str):
        if access.is_limited:
            access.check_topic(topic)
        found = image.topic(topic)
        if found is None:
            raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic[:249]!r} does not exist")
    else:
        found = image.topic_by_id(topic)
        if found is None:
            raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_ID, f"topic id {topic} does not exist")
        if access.is_limited:
            access.check_topic(found.name, is_named=False)
    return found


def answer_later(
    groups: GroupCoordination, command: GroupCommand, kind: type[A], encode: Callable[[A], bytes], access: Access
) -> DeferredResponse:
    """Send a command to the coordinator and return the deferred response. `encode` encodes the answer, of type `kind`.

    A request that may not use the group is answered with GROUP_AUTHORIZATION_FAILED.
    """
    if access.is_limited and not access.allows_group(command.group_id):
        return DeferredResponse.done(encode(kind(error=ErrorCode.GROUP_AUTHORIZATION_FAILED)))
    later = DeferredResponse()

    def reply(answer: Answer) -> None:
        try:
            assert isinstance(answer, kind), f"{command} was answered with {answer}"
            later.finish(encode(answer))
        except Exception as error:
            later.fail(error)

    later.on_hurry(groups.ask(command.group_id, command, reply))
    return later


async def answer_to(groups: GroupCoordination, command: GroupCommand, kind: type[A], access: Access) -> A:
    """Send a command to the coordinator and return its answer, of type `kind`.

    A request that may not use the group gets GROUP_AUTHORIZATION_FAILED. The function yields to the event loop first,
    because the coordinator may answer at once and a request may name many groups.
    """
    await asyncio.sleep(0)
    if access.is_limited and not access.allows_group(command.group_id):
        return kind(error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    answer = await groups.request(command.group_id, command)
    assert isinstance(answer, kind), f"{command} was answered with {answer}"
    return answer


def client_host(request: BrokerRequest) -> str:
    """Return the host of a member in the form that Kafka's tools show."""
    return f"/{request.peer.address}"
