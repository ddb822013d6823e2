"""Runs the client's requests about the cluster, its topics and the offsets of its partitions.

Every operation has a deadline, until which it retries retriable failures. Each retry goes to the broker that is
responsible at that time.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from millstream import __version__
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition, check_topic_name
from millstream.model.setting_values import SettingValue
from millstream.sdk import requests
from millstream.sdk.admin.admin import AdminEngine
from millstream.sdk.admin.change_retry import AlreadyAppliedError, administer
from millstream.sdk.admin.groups import Coordinators, GroupsEngine
from millstream.sdk.admin.service_map import BackupMap, ServiceMap, backup_map, service_map
from millstream.sdk.connection.clock_drift import ClockDrift, average
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.feed.leader_call import ask_partitions
from millstream.sdk.responses import BrokerInfo, ClusterView, ListedOffset, TopicView
from millstream.sdk.time_arguments import Moment, Times
from millstream.seams.clock import Clock

OPERATION_TIMEOUT_S = 30.0


class DriftInfo(NamedTuple):
    """A broker's description of itself, and how far this machine's clock is ahead of the broker's.

    `drift_ms` is negative if this machine's clock is behind. It is corrected by half of the round trip.
    """

    broker: BrokerInfo
    drift_ms: int


class ClusterQueries:
    """The engine of the client's own methods: metadata, topics, offsets, clocks, admin and groups."""

    def __init__(self, caller: RetryingCaller, clock: Clock) -> None:
        self._caller = caller
        self._cluster = caller.cluster
        self._clock = clock
        self.times = Times(clock)
        self.admin = AdminEngine(caller)
        """Administration: settings, partitions, sizes, the cluster and catalog queries."""
        self._coordinators = Coordinators(caller)
        self.groups = GroupsEngine(caller, self._coordinators)
        """Administration of groups: members, committed offsets, deletion."""

    async def reach(self, timeout_s: float | None) -> None:
        """Connect to any broker. The seeds are tried until `timeout_s` is over; None tries each seed once."""
        if timeout_s is None:
            await self._cluster.anyone(self._cluster.connecting())
        else:
            deadline = Deadline(timeout_s)
            await self._caller.retrying(lambda: self._cluster.anyone(deadline), deadline)

    # About the cluster.

    async def metadata(
        self, topics: Sequence[str] | None = None, *, timeout_s: float = OPERATION_TIMEOUT_S
    ) -> ClusterView:
        """Return the cluster with these topics, or all. A topic that cannot be described has an error number."""
        deadline = Deadline(timeout_s)
        return await self._caller.retrying(lambda: self._cluster.refresh(topics, deadline), deadline)

    async def info(self, *, node_id: int | None = None, timeout_s: float = OPERATION_TIMEOUT_S) -> DriftInfo:
        """Return the description of broker `node_id`, or of any broker; Kafka's brokers raise UNSUPPORTED_VERSION."""
        deadline = Deadline(timeout_s)

        async def ask() -> DriftInfo:
            connection = await (
                self._cluster.anyone(deadline) if node_id is None else self._cluster.broker(node_id, deadline)
            )
            before_ms = self._clock.wall_ms()
            answer = await connection.request(requests.info(__version__), self._cluster.timeout_s(deadline))
            after_ms = self._clock.wall_ms()
            return DriftInfo(answer, (before_ms + after_ms) // 2 - answer.server_time_ms)

        return await self._caller.retrying(ask, deadline)

    async def clock_drift(self, *, timeout_s: float = OPERATION_TIMEOUT_S) -> ClockDrift:
        """Return how far this clock is ahead of the brokers' average; raises the last error if no broker answers."""
        deadline = Deadline(timeout_s)
        view = await self._caller.retrying(lambda: self._cluster.refresh([], deadline), deadline)
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
                ErrorCode.NETWORK_EXCEPTION, "the cluster metadata lists no brokers, so there is no clock to compare"
            )
        return average(ahead)

    async def service_map(
        self, topics: Sequence[str] | None = None, *, timeout_s: float = OPERATION_TIMEOUT_S
    ) -> ServiceMap:
        """Return the addresses of all services, and the leaders of the partitions of these topics, or of all."""
        return await service_map(self._caller, topics, Deadline(timeout_s))

    async def backup_map(
        self, topics: Sequence[str] | None = None, *, timeout_s: float = OPERATION_TIMEOUT_S
    ) -> BackupMap:
        """Return the followers of the partitions of these topics, or of all, with their end offsets."""
        return await backup_map(self._caller, topics, Deadline(timeout_s))

    # Topics.

    async def list_topics(self, *, internal: bool = False, timeout_s: float = OPERATION_TIMEOUT_S) -> list[TopicView]:
        """Return all topics, sorted by name; internal topics only with `internal`."""
        view = await self.metadata(timeout_s=timeout_s)
        return sorted(each for each in view.topics.values() if internal or not each.is_internal)

    async def describe_topic(
        self, name: str, *, auto_create: bool = False, timeout_s: float = OPERATION_TIMEOUT_S
    ) -> TopicView:
        """Return one topic; raises UNKNOWN_TOPIC_OR_PARTITION if it does not exist and is not created."""
        check_topic_name(name)
        deadline = Deadline(timeout_s)
        return await self._caller.retrying(
            lambda: self._cluster.topic(name, deadline, auto_create=auto_create), deadline, name
        )

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        settings: Mapping[str, SettingValue] | None = None,
        timeout_s: float = OPERATION_TIMEOUT_S,
    ) -> UUID:
        """Create a topic and return its id. -1 uses the broker's default for that number.

        Raises INVALID_CONFIG, which names the setting, for an invalid setting.

        If the answer to an attempt was lost and the retry finds the topic with the requested number of partitions, the
        topic counts as created by this call.
        """
        check_topic_name(name)
        deadline = Deadline(timeout_s)
        request = requests.create_topic(
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            settings=settings or {},
            timeout_ms=self._cluster.broker_timeout_ms(deadline),
        )
        try:
            topic_id = await administer(
                self._caller, self._cluster.controller, request, deadline, ErrorCode.TOPIC_ALREADY_EXISTS
            )
            self._cluster.forget(name)
            return topic_id
        except AlreadyAppliedError:
            view = await self.describe_topic(name, timeout_s=max(deadline.left_s, 1.0))
            if partitions not in (-1, len(view.partitions)):
                text = f"topic {name!r} already exists, with {len(view.partitions)} partitions"
                raise MillstreamError(ErrorCode.TOPIC_ALREADY_EXISTS, text) from None
            return view.topic_id

    async def delete_topic(self, name: str, *, timeout_s: float = OPERATION_TIMEOUT_S) -> None:
        """Delete a topic with all its messages; raises UNKNOWN_TOPIC_OR_PARTITION if it does not exist."""
        check_topic_name(name)
        deadline = Deadline(timeout_s)
        request = requests.delete_topic(name, self._cluster.broker_timeout_ms(deadline))
        try:
            await administer(
                self._caller, self._cluster.controller, request, deadline, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        except AlreadyAppliedError:
            pass
        self._cluster.forget(name)

    # Offsets.

    async def list_offset(
        self, topic: str, partition: int, when: int, *, timeout_s: float = OPERATION_TIMEOUT_S
    ) -> ListedOffset | None:
        """Return the offset of BEGINNING, LATEST, or of the first message at or after a time (ms); None if none."""
        where = TopicPartition(topic, partition)
        found = (await self.list_offsets({where: when}, timeout_s=timeout_s))[where]
        return found if found.offset >= 0 else None

    async def offsets(
        self, places: Mapping[TopicPartition, Moment | str], *, timeout_s: float = OPERATION_TIMEOUT_S
    ) -> dict[TopicPartition, ListedOffset]:
        """Return offsets like `list_offsets`, for a start word or a time; raises INVALID_SETTING otherwise."""
        found = {where: self._mark(when) for where, when in places.items()}
        return await self.list_offsets(found, timeout_s=timeout_s)

    def _mark(self, when: Moment | str) -> int:
        if isinstance(when, str):
            return self.times.lookup_ms(when, "offset")
        return self.times.moment_ms(when, "offset")

    async def list_offsets(
        self, places: Mapping[TopicPartition, int], *, timeout_s: float = OPERATION_TIMEOUT_S
    ) -> dict[TopicPartition, ListedOffset]:
        """Return offsets of many partitions; -1 if a partition has no message at or after the time."""
        return await ask_partitions(self._caller, places, requests.list_offsets, Deadline(timeout_s))
