"""Groups as seen from outside: which there are, who belongs to them, how far they are.

A group is kept by its coordinator, one of the brokers. Who that is, is remembered, and asked again when a broker says
that it is not, or is not there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.admin import group_requests
from millstream.sdk.admin.change_retry import AlreadyAppliedError, administer
from millstream.sdk.admin.group_requests import PartitionResults
from millstream.sdk.admin.group_results import NOBODY, CommittedOffset, GroupDescription, GroupListing, MemberRef
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.connection import BrokerConnection
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import PLACES_PER_REQUEST, RetryingCaller
from millstream.wire.client_connection import ApiRequest

T = TypeVar("T")

TIMEOUT_S = 30.0

COORDINATORS_KEPT = 10_000
"""Of so many groups it is remembered who keeps them; whoever names more has it looked up again."""

_NOT_OF_THIS_KIND = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


class Coordinators:
    """Finds and asks the broker that keeps a group."""

    def __init__(self, asking: RetryingCaller) -> None:
        self._asking = asking
        self._cluster = asking.cluster
        self._known: dict[str, Address] = {}

    async def connection(self, group_id: str, deadline: Deadline) -> BrokerConnection:
        """A connection to the group's coordinator, in one attempt."""
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
        """Ask anew who keeps this group: the one that was asked last does not, or does not answer."""
        self._known.pop(group_id, None)

    async def ask_once(self, group_id: str, request: ApiRequest[T], deadline: Deadline) -> T:
        """The coordinator's answer, in one attempt."""
        try:
            connection = await self.connection(group_id, deadline)
            return await connection.request(request, self._cluster.timeout_s(deadline))
        except MillstreamError as error:
            if error.code.retriable:
                self.forget(group_id)
            raise

    async def ask(self, group_id: str, request: ApiRequest[T], deadline: Deadline) -> T:
        """The coordinator's answer, whoever it is by then."""
        return await self._asking.retrying(lambda: self.ask_once(group_id, request, deadline), deadline)

    async def settle(
        self,
        group_id: str,
        places: Sequence[TopicPartition],
        request: Callable[[Sequence[TopicPartition]], ApiRequest[PartitionResults]],
        deadline: Deadline,
    ) -> None:
        """Have the coordinator do something with each partition; the first refusal that lasts is raised."""
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

        await self._asking.retrying(attempt, deadline)

    async def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        member: MemberRef,
        deadline: Deadline,
        topic_ids: Mapping[str, UUID] | None = None,
    ) -> None:
        """Set where the group goes on, in the name of a member or of nobody; in the topics of these ids."""

        def request(share: Sequence[TopicPartition]) -> ApiRequest[PartitionResults]:
            rows = {where: offsets[where] for where in share}
            return group_requests.commit_offsets(group_id, rows, member, topic_ids)

        await self.settle(group_id, list(offsets), request, deadline)


class GroupsEngine:
    """The part of a client that looks after groups from outside; reached as `client.groups`."""

    def __init__(self, asking: RetryingCaller, coordinators: Coordinators) -> None:
        self._asking = asking
        self._coordinators = coordinators

    async def list(
        self, *, states: Sequence[str] = (), kinds: Sequence[str] = (), timeout_s: float = TIMEOUT_S
    ) -> list[GroupListing]:
        """All groups of the cluster by name, or those in these states and of these kinds."""
        request = group_requests.list_groups(states, kinds)
        answers = await self._asking.every_broker(request, Deadline(timeout_s))
        return sorted(group for answer in answers.values() for group in answer)

    async def describe(self, group_id: str, *, timeout_s: float = TIMEOUT_S) -> GroupDescription:
        """A group of either kind; GROUP_ID_NOT_FOUND when there is none of this name."""
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
        """What a group has committed, for these partitions or all; nothing where it has not, or where it is unknown."""
        request = group_requests.fetch_offsets(group_id, places)
        return await self._coordinators.ask(group_id, request, Deadline(timeout_s))

    async def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Set where a group goes on; makes the group where it is unknown.

        That is for groups whose members are away: UNKNOWN_MEMBER_ID otherwise.
        """
        await self._coordinators.commit(group_id, offsets, NOBODY, Deadline(timeout_s))

    async def delete_offsets(
        self, group_id: str, places: Sequence[TopicPartition], *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Forget where a group was in these partitions; GROUP_SUBSCRIBED_TO_TOPIC while its members read them."""

        def request(share: Sequence[TopicPartition]) -> ApiRequest[PartitionResults]:
            return group_requests.delete_offsets(group_id, share)

        await self._coordinators.settle(group_id, list(places), request, Deadline(timeout_s))

    async def delete(self, group_id: str, *, timeout_s: float = TIMEOUT_S) -> None:
        """Delete a group with its offsets; NON_EMPTY_GROUP while it has members, GROUP_ID_NOT_FOUND if unknown."""

        async def find(deadline: Deadline) -> BrokerConnection:
            self._coordinators.forget(group_id)
            return await self._coordinators.connection(group_id, deadline)

        request = group_requests.delete_group(group_id)
        try:
            await administer(self._asking, find, request, Deadline(timeout_s), ErrorCode.GROUP_ID_NOT_FOUND)
        except AlreadyAppliedError:
            pass
