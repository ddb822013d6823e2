"""What a client can ask without writing or reading: the cluster, its topics, places in partitions.

Every operation has a deadline; within it, what may be retried is retried, at whichever broker is right by then.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from millstream import __version__
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition, check_topic_name
from millstream.sdk import requests
from millstream.sdk.admin.admin import AdminEngine
from millstream.sdk.admin.change_retry import AlreadyAppliedError, administer
from millstream.sdk.admin.groups import Coordinators, GroupsEngine
from millstream.sdk.admin.service_map import BackupMap, ServiceMap, backup_map, service_map
from millstream.sdk.connection.clock_drift import ClockDrift, average
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.responses import BrokerInfo, ClusterView, ListedOffset, TopicView
from millstream.sdk.time_arguments import Time, Times
from millstream.seams.clock import Clock

OPERATION_TIMEOUT_S = 30.0

_MARKS = {"beginning": requests.BEGINNING, "latest": requests.LATEST}


class DriftInfo(NamedTuple):
    """A broker's account of itself, and how far the own clock is ahead of its (negative: behind), with half the round
    trip taken off."""

    broker: BrokerInfo
    drift_ms: int


class ClusterQueries:
    """What a client is before it writes or reads."""

    def __init__(self, asking: RetryingCaller, clock: Clock) -> None:
        self._asking = asking
        self._cluster = asking.cluster
        self._clock = clock
        self.times = Times(clock)
        self.admin = AdminEngine(asking)
        """Settings, partitions, sizes, queries."""
        self._coordinators = Coordinators(asking)
        self.groups = GroupsEngine(asking, self._coordinators)
        """Groups seen from outside: who belongs to them and how far they are."""

    async def reach(self, timeout_s: float | None) -> None:
        """Have a connection. The seeds are tried until `timeout_s` is over, or each of them once (None)."""
        if timeout_s is None:
            await self._cluster.anyone(self._cluster.connecting())
        else:
            deadline = Deadline(timeout_s)
            await self._asking.retrying(lambda: self._cluster.anyone(deadline), deadline)

    # About the cluster.

    async def metadata(
        self, topics: Sequence[str] | None = None, *, timeout_s: float = OPERATION_TIMEOUT_S
    ) -> ClusterView:
        """The cluster with these topics, or all; a topic that cannot be described carries its error's number."""
        deadline = Deadline(timeout_s)
        return await self._asking.retrying(lambda: self._cluster.refresh(topics, deadline), deadline)

    async def info(self, *, node_id: int | None = None, timeout_s: float = OPERATION_TIMEOUT_S) -> DriftInfo:
        """What a broker, this one or any, says of itself; UNSUPPORTED_VERSION from one that is not ours."""
        deadline = Deadline(timeout_s)

        async def ask() -> DriftInfo:
            connection = await (
                self._cluster.anyone(deadline) if node_id is None else self._cluster.broker(node_id, deadline)
            )
            before_ms = self._clock.wall_ms()
            answer = await connection.request(requests.info(__version__), self._cluster.timeout_s(deadline))
            after_ms = self._clock.wall_ms()
            return DriftInfo(answer, (before_ms + after_ms) // 2 - answer.server_time_ms)

        return await self._asking.retrying(ask, deadline)

    async def clock_drift(self, *, timeout_s: float = OPERATION_TIMEOUT_S) -> ClockDrift:
        """How far our clock is ahead of the average of those brokers that tell theirs; the failure when none does."""
        deadline = Deadline(timeout_s)
        view = await self._asking.retrying(lambda: self._cluster.refresh([], deadline), deadline)
        ahead: dict[int, timedelta] = {}
        failure: MillstreamError | None = None
        for left, node_id in enumerate(sorted(view.brokers), -len(view.brokers)):
            try:
                found = await self.info(node_id=node_id, timeout_s=deadline.left_s / -left)
            except MillstreamError as error:
                failure = error
            else:
                ahead[node_id] = timedelta(milliseconds=found.drift_ms)
        if not ahead:
            raise failure or MillstreamError(
                ErrorCode.NETWORK_EXCEPTION, "the cluster names no broker to ask for its time"
            )
        return average(ahead)

    async def service_map(
        self, topics: Sequence[str] | None = None, *, timeout_s: float = OPERATION_TIMEOUT_S
    ) -> ServiceMap:
        """Which service runs where, and who leads these topics' partitions, or all."""
        return await service_map(self._asking, topics, Deadline(timeout_s))

    async def backup_map(
        self, topics: Sequence[str] | None = None, *, timeout_s: float = OPERATION_TIMEOUT_S
    ) -> BackupMap:
        """Who follows these topics' partitions, or all, and how far."""
        return await backup_map(self._asking, topics, Deadline(timeout_s))

    # Topics.

    async def list_topics(self, *, internal: bool = False, timeout_s: float = OPERATION_TIMEOUT_S) -> list[TopicView]:
        """All topics the cluster tells of, by name; the brokers' own only if they are asked for."""
        view = await self.metadata(timeout_s=timeout_s)
        return sorted(each for each in view.topics.values() if internal or not each.is_internal)

    async def describe_topic(
        self, name: str, *, auto_create: bool = False, timeout_s: float = OPERATION_TIMEOUT_S
    ) -> TopicView:
        """One topic; UNKNOWN_TOPIC_OR_PARTITION when it is not there (and may not be made)."""
        check_topic_name(name)
        deadline = Deadline(timeout_s)
        return await self._asking.retrying(
            lambda: self._cluster.topic(name, deadline, auto_create=auto_create), deadline, name
        )

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        settings: Mapping[str, str] | None = None,
        timeout_s: float = OPERATION_TIMEOUT_S,
    ) -> UUID:
        """Create a topic, and give its id. -1 leaves a number to the broker.

        When an attempt's answer was lost and the next finds the topic there with the partitions asked for, it counts
        as made by this call.
        """
        check_topic_name(name)
        deadline = Deadline(timeout_s)
        request = requests.create_topic(
            name, partitions, replication_factor, settings or {}, self._cluster.broker_timeout_ms(deadline)
        )
        try:
            made = await administer(
                self._asking, self._cluster.controller, request, deadline, ErrorCode.TOPIC_ALREADY_EXISTS
            )
            self._cluster.forget(name)
            return made
        except AlreadyAppliedError:
            view = await self.describe_topic(name, timeout_s=max(deadline.left_s, 1.0))
            if partitions not in (-1, len(view.partitions)):
                text = f"topic {name!r} exists already, with {len(view.partitions)} partitions"
                raise MillstreamError(ErrorCode.TOPIC_ALREADY_EXISTS, text) from None
            return view.topic_id

    async def delete_topic(self, name: str, *, timeout_s: float = OPERATION_TIMEOUT_S) -> None:
        """Delete a topic with all its messages; UNKNOWN_TOPIC_OR_PARTITION when it is not there."""
        check_topic_name(name)
        deadline = Deadline(timeout_s)
        request = requests.delete_topic(name, self._cluster.broker_timeout_ms(deadline))
        try:
            await administer(
                self._asking, self._cluster.controller, request, deadline, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        except AlreadyAppliedError:
            pass
        self._cluster.forget(name)

    # Offsets.

    async def list_offset(
        self, topic: str, partition: int, when: int, *, timeout_s: float = OPERATION_TIMEOUT_S
    ) -> ListedOffset | None:
        """The place of BEGINNING, LATEST, or the first message at or after a time (ms); None when there is none."""
        where = TopicPartition(topic, partition)
        found = (await self.list_offsets({where: when}, timeout_s=timeout_s))[where]
        return found if found.offset >= 0 else None

    async def offsets(
        self, places: Mapping[TopicPartition, Time | str], *, timeout_s: float = OPERATION_TIMEOUT_S
    ) -> dict[TopicPartition, ListedOffset]:
        """As `list_offsets`, with the times as people write them; INVALID_SETTING for what is none."""
        found = {where: self._mark(when) for where, when in places.items()}
        return await self.list_offsets(found, timeout_s=timeout_s)

    def _mark(self, when: Time | str) -> int:
        if not isinstance(when, str):
            return self.times.moment_ms(when, "offset")
        if when not in _MARKS:
            text = f"{when!r} is no place in a partition; expected 'beginning', 'latest' or a time"
            raise MillstreamError(ErrorCode.INVALID_SETTING, text)
        return _MARKS[when]

    async def list_offsets(
        self, places: Mapping[TopicPartition, int], *, timeout_s: float = OPERATION_TIMEOUT_S
    ) -> dict[TopicPartition, ListedOffset]:
        """As `list_offset`, for many partitions at once; the offset is -1 where no message is that late."""
        return await self._asking.leaders(places, requests.list_offsets, Deadline(timeout_s))
