"""Groups as handlers see them, and how a question to them becomes an answer on the wire."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar
from uuid import UUID

from millstream.broker.dispatch.request import BrokerRequest, DeferredResponse
from millstream.catalog.catalog import Topic
from millstream.groups.commands import ListGroups
from millstream.groups.responses import Answer, GroupList
from millstream.groups.runtime.coordinator import GroupCommand

A = TypeVar("A", bound=Answer)


class GroupCoordination(Protocol):
    """What the coordinator does for handlers."""

    async def ensure(self) -> None: ...

    def ask(self, command: GroupCommand, reply: Callable[[Answer], None]) -> Callable[[], None]: ...

    async def request(self, command: GroupCommand) -> Answer: ...

    async def list_groups(self, command: ListGroups) -> GroupList: ...


class TopicNames(Protocol):
    """Which topics there are, and how many partitions they have."""

    def topic(self, name: str) -> Topic | None: ...

    def topic_by_id(self, topic_id: UUID) -> Topic | None: ...


def answer_later(
    groups: GroupCoordination, command: GroupCommand, kind: type[A], encode: Callable[[A], bytes]
) -> DeferredResponse:
    """Put one question; its answer, which is of this kind, is written by `encode` when it comes."""
    later = DeferredResponse()

    def reply(answer: Answer) -> None:
        try:
            assert isinstance(answer, kind), f"{command} was answered with {answer}"
            later.finish(encode(answer))
        except Exception as error:
            later.fail(error)

    later.on_hurry(groups.ask(command, reply))
    return later


async def answer_to(groups: GroupCoordination, command: GroupCommand, kind: type[A]) -> A:
    """Put one question and wait for its answer, which is of this kind. Others get their turn before: the answer may be
    there at once, and a request may name many groups."""
    await asyncio.sleep(0)
    answer = await groups.request(command)
    assert isinstance(answer, kind), f"{command} was answered with {answer}"
    return answer


def client_host(request: BrokerRequest) -> str:
    """Where a member came from, as Kafka's tools are used to see it."""
    return f"/{request.peer.address}"
