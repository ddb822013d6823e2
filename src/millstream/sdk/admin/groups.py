"""Finds group coordinators, and runs administrative requests on groups.

The coordinator of a group is one of the brokers. Its address is cached until a request to it fails with a retriable
error, such as NOT_COORDINATOR or a lost connection.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.admin import group_requests
from millstream.sdk.admin.change_retry import AlreadyAppliedError, administer
from millstream.sdk.admin.group_requests import PartitionResults
from millstream.sdk.admin.group_results import (
    NOBODY,
    CommittedOffset,
    GroupDescription,
    GroupListing,
    GroupMember,
    MemberRef,
)
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.connection import BrokerConnection
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import PLACES_PER_REQUEST, RetryingCaller
from millstream.wire.client_connection import ApiRequest

T = TypeVar("T")

TIMEOUT_S = 30.0

COORDINATORS_KEPT = 10_000
"""Maximum number of groups in the coordinator cache. A full cache is cleared."""

_NOT_OF_THIS_KIND = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


class Coordinators:
    """Caches the coordinator of each group, and sends requests to it."""

    def __init__(self, caller: RetryingCaller) -> None:
        self._caller = caller
        self._cluster = caller.cluster
        self._known: dict[str, Address] = {}

    async def connection(self, group_id: str, deadline: Deadline) -> BrokerConnection:
        """Return a connection to the group's coordinator, without retries."""
        address = self._known.get(group_id)
        if address is None:
            anyone = await self._cluster.anyone(deadline)
            request = group_requests.find_coordinator(group_id)
            broker = await anyone.request(request, self._cluster.timeout_s(deadline))
            if len(self._known) >= COORDINATORS_KEPT:
                self._known.clear()
            address = self._known[group_id] = Address(broker.host, broker.port)
        try:
            return await self._cluster.to(address, deadline)
        except MillstreamError:
            self.forget(group_id)
            raise

    def forget(self, group_id: str) -> None:
        """Remove a group from the cache, so that its coordinator is looked up again."""
        self._known.pop(group_id, None)

    async def ask_once(self, group_id: str, request: ApiRequest[T], deadline: Deadline) -> T:
        """Send a request to the coordinator, without retries."""
        try:
            connection = await self.connection(group_id, deadline)
            return await connection.request(request, self._cluster.timeout_s(deadline))
        except MillstreamError as error:
            if error.code.retriable:
                self.forget(group_id)
            raise

    async def ask(self, group_id: str, request: ApiRequest[T], deadline: Deadline) -> T:
        """Send a request to the coordinator, with retries at the current one."""
        return await self.retrying(lambda: self.ask_once(group_id, request, deadline), deadline)

    async def retrying(self, attempt: Callable[[], Awaitable[T]], deadline: Deadline) -> T:
        """Run `attempt`, which asks a coordinator once, until it succeeds or the deadline has passed."""
        return await self._caller.retrying(attempt, deadline)

    async def settle(
        self,
        group_id: str,
        places: Sequence[TopicPartition],
        request: Callable[[Sequence[TopicPartition]], ApiRequest[PartitionResults]],
        deadline: Deadline,
    ) -> None:
        """Apply a request to each partition, with retries; raises the first permanent error."""
        left = list(places)

        async def attempt() -> None:
            while left:
                share = left[:PLACES_PER_REQUEST]
                results = await self.ask_once(group_id, request(share), deadline)
                for error in filter(None, results.values()):
                    if error.code.retriable:
                        self.forget(group_id)
                    raise error
                del left[: len(share)]

        await self._caller.retrying(attempt, deadline)

    async def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        member: MemberRef,
        deadline: Deadline,
        topic_ids: Mapping[str, UUID] | None = None,
    ) -> None:
        """Commit offsets for a member, or for NOBODY. `topic_ids` restricts the commit to topics with these ids."""

        def request(share: Sequence[TopicPartition]) -> ApiRequest[PartitionResults]:
            rows = {where: offsets[where] for where in share}
            return group_requests.commit_offsets(group_id, rows, member, topic_ids)

        await self.settle(group_id, list(offsets), request, deadline)


def active_members_error(group_id: str, members: Sequence[GroupMember]) -> MillstreamError:
    """Return the error for a change that needs a group without active members. It names the first members."""
    shown = ", ".join(f"{member.label} at {member.host}" for member in members[:3])
    more = f" and {len(members) - 3} more" if len(members) > 3 else ""
    noun = "active member" if len(members) == 1 else "active members"
    return MillstreamError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id!r} has {len(members)} {noun}: {shown}{more}")


class GroupsEngine:
    """The engine of `client.groups`."""

    def __init__(self, caller: RetryingCaller, coordinators: Coordinators) -> None:
        self._caller = caller
        self._coordinators = coordinators

    async def list(
        self, *, states: Sequence[str] = (), kinds: Sequence[str] = (), timeout_s: float = TIMEOUT_S
    ) -> list[GroupListing]:
        """Return the groups of the cluster, sorted by name; optionally only these states and kinds."""
        request = group_requests.list_groups(states, kinds)
        answers = await self._caller.every_broker(request, Deadline(timeout_s))
        return sorted(group for answer in answers.values() for group in answer)

    async def describe(self, group_id: str, *, timeout_s: float = TIMEOUT_S) -> GroupDescription:
        """Return a group of either kind; raises GROUP_ID_NOT_FOUND if it does not exist."""
        deadline = Deadline(timeout_s)
        try:
            return await self._coordinators.ask(group_id, group_requests.describe_consumer_group(group_id), deadline)
        except MillstreamError as error:
            if error.code not in _NOT_OF_THIS_KIND:
                raise
        return await self._coordinators.ask(group_id, group_requests.describe_classic_group(group_id), deadline)

    async def offsets(
        self, group_id: str, places: Iterable[TopicPartition] | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets for these partitions, or all. Partitions without one are left out."""
        request = group_requests.fetch_offsets(group_id, places)
        return await self._coordinators.ask(group_id, request, Deadline(timeout_s))

    async def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Set committed offsets of a group; creates an unknown group.

        Raises NON_EMPTY_GROUP, which names them, while the group has active members.
        """
        deadline = Deadline(timeout_s)
        try:
            await self._coordinators.commit(group_id, offsets, NOBODY, deadline)
        except MillstreamError as error:
            if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
                raise
            members = (await self.describe(group_id, timeout_s=deadline.left_s)).members
            found = active_members_error(group_id, members)
            advice = "stop its consumers, or wait until their sessions expire, then set the offsets again"
            raise MillstreamError(found.code, f"{found.detail}; {advice}") from error

    async def delete_offsets(
        self, group_id: str, places: Sequence[TopicPartition], *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Delete committed offsets; raises GROUP_SUBSCRIBED_TO_TOPIC while members read these topics."""

        def request(share: Sequence[TopicPartition]) -> ApiRequest[PartitionResults]:
            return group_requests.delete_offsets(group_id, share)

        await self._coordinators.settle(group_id, list(places), request, Deadline(timeout_s))

    async def delete(self, group_id: str, *, timeout_s: float = TIMEOUT_S) -> None:
        """Delete a group with its offsets; raises NON_EMPTY_GROUP or GROUP_ID_NOT_FOUND."""

        async def find(deadline: Deadline) -> BrokerConnection:
            self._coordinators.forget(group_id)
            return await self._coordinators.connection(group_id, deadline)

        request = group_requests.delete_group(group_id)
        try:
            await administer(self._caller, find, request, Deadline(timeout_s), ErrorCode.GROUP_ID_NOT_FOUND)
        except AlreadyAppliedError:
            pass
