"""Connects a consumer to its group (KIP-848): applies the group's assignment to the fetcher and commits offsets.

An assigned partition starts at its committed offset. Assignments are applied only while the caller polls, so a
partition is never revoked while the caller processes its messages. Heartbeats run in the background (`heartbeats`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import TopicId
from millstream.model.names import TopicPartition
from millstream.process.log_event import LogEvent
from millstream.sdk.admin import group_requests
from millstream.sdk.admin.groups import Coordinators
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.consuming.fetcher import Fetcher
from millstream.sdk.consuming.group.commits import Commits
from millstream.sdk.consuming.group.heartbeats import Heartbeats
from millstream.sdk.consuming.group.member_core import OUTSIDE, MemberCore, Share
from millstream.sdk.consuming.group.subscribed_topics import SubscribedTopics
from millstream.sdk.consuming.partition_source import Change, ChangeKind
from millstream.sdk.consuming.start_positions import ADDED_FROM, StartPositions
from millstream.sdk.consuming.topic_pattern import TopicPattern
from millstream.sdk.reader_defaults import CALLBACK_TIMEOUT_S, CLOSE_TIMEOUT_S, HANDLER_TIMEOUT_S
from millstream.sdk.single_flight import SingleFlight
from millstream.seams.entropy import random_uuid

COMMIT_TIMEOUT_S = 10.0

log = logging.getLogger("millstream.sdk.consumer")

_INT32_MAX = 2**31 - 1
_TRY_AGAIN_S = 0.05


@dataclass(frozen=True, slots=True)
class GroupRules:
    """The settings of a group member."""

    group_id: str
    auto_commit_s: float | None = 5.0
    """The interval at which finished offsets are committed; None leaves commits to the caller."""
    handler_timeout_s: float | None = HANDLER_TIMEOUT_S
    """The longest time without progress of the caller before the member leaves the group; None for no limit."""
    callback_timeout_s: float = CALLBACK_TIMEOUT_S
    """The longest time that a callback for an assignment change may take."""
    close_timeout_s: float = CLOSE_TIMEOUT_S
    """The longest time that the last commit and leaving may take together."""
    instance_id: str | None = None
    """Makes a static member, which keeps its partitions when it restarts with the same instance id."""
    assignor: str | None = None
    """The coordinator's assignor, `uniform` or `range`; None leaves the choice to the coordinator."""
    has_callbacks: bool = False
    """True if the caller has callbacks for assignment changes."""
    pattern: TopicPattern | None = None
    """The expression of the topics' names, which the coordinator matches; None for a list of topics."""

    @property
    def rebalance_timeout_ms(self) -> int:
        """The time that the coordinator waits for the caller to release revoked partitions."""
        return min(_INT32_MAX, int(1000 * min(self.handler_timeout_s or inf, _INT32_MAX)))


class ConsumerMembership:
    """The group membership of one consumer.

    `progress` returns a number that changes when the caller takes messages. `changed` is called when there may be an
    assignment change to apply.
    """

    def __init__(
        self,
        asking: RetryingCaller,
        reading: Fetcher,
        topics: Sequence[str],
        start: StartPositions,
        rules: GroupRules,
        *,
        progress: Callable[[], int],
        changed: Callable[[], None],
    ) -> None:
        self._asking = asking
        self._reading = reading
        self._start = start
        self._rules = rules
        self._coordinators = Coordinators(asking)
        self._loop = asyncio.get_running_loop()
        self.core = MemberCore(
            rules.group_id,
            str(random_uuid(asking.entropy)),
            tuple(dict.fromkeys(topics)),
            rebalance_timeout_ms=rules.rebalance_timeout_ms,
            instance_id=rules.instance_id,
            assignor=rules.assignor,
            topic_regex=None if rules.pattern is None else rules.pattern.expression,
        )
        self.heartbeats = Heartbeats(self._coordinators, self.core, asking.entropy, progress=progress, changed=changed)
        self.commits = Commits(self._coordinators, self.core, self.heartbeats)
        self._keys: dict[TopicPartition, tuple[TopicId, int]] = {}
        """Topic id and partition number of each partition that is read."""
        self._announced_releases: frozenset[TopicPartition] = frozenset()
        """The partitions for which `on_revoked` was called and that are not released yet."""
        self._assigned_in: int | None = None
        """The life in which `on_assigned` is running; None while it is not."""
        self._is_too_slow = False
        """True if `on_assigned` last took so long that the member lost its partitions."""
        self.topics = SubscribedTopics(
            asking, rules.group_id, tuple(dict.fromkeys(topics)), has_pattern=rules.pattern is not None
        )
        self._committing = SingleFlight(self._commit_finished, "commit of finished offsets", changed)
        self._commit_due_s = 0.0
        self._try_again_s: float | None = None

    # Source

    async def start(self, timeout_s: float) -> None:
        await self.heartbeats.join(timeout_s)
        self._commit_due_s = self._loop.time() + (self._rules.auto_commit_s or 0.0)
        with suppress(MillstreamError):  # Looked up again when partitions are assigned.
            await self.topics.names(self.core.target)
        self.topics.log_missing()

    @property
    def wants_attention(self) -> bool:
        """True if the caller should poll soon, even if it has messages left."""
        core = self.core
        return core.owned != core.target or self.commits.life != core.lives or self.heartbeats.failure is not None

    @property
    def is_changed(self) -> bool:
        return self.wants_attention

    async def follow(self) -> Change | None:
        """Release revoked partitions, then start to read assigned ones; retriable failures are retried later."""
        if self.heartbeats.failure is not None:
            raise self.heartbeats.failure
        core = self.core
        if self.commits.life != core.lives:
            return self._lose()
        if core.owned == core.target:
            return None
        self._try_again_s = None
        try:
            return await self._reconcile()
        except MillstreamError as error:
            if not (error.code.retriable or error.code is ErrorCode.STALE_MEMBER_EPOCH or error.code in OUTSIDE):
                raise
            self.heartbeats.soon()
            self._try_again_s = self._loop.time() + _TRY_AGAIN_S
            return None

    def settle(self) -> None:
        """Start a commit of finished offsets if the auto-commit interval has passed."""
        self._committing.accept_result()
        interval_s = self._rules.auto_commit_s
        if interval_s is None or self._committing.is_under_way or self._loop.time() < self._commit_due_s:
            return
        self._commit_due_s = self._loop.time() + interval_s
        if self.commits.is_behind:
            self._committing.begin()

    async def _commit_finished(self) -> None:
        assert self._rules.auto_commit_s is not None, "auto-commit has an interval"
        try:
            await self.commits.commit(self.commits.finished, self._rules.auto_commit_s)
        except MillstreamError as error:
            if not (error.code.retriable or error.code in OUTSIDE):
                raise
            self.heartbeats.soon()  # Its answer shows whether this member is still in the group.

    @property
    def is_over(self) -> bool:
        return False

    @property
    def due_in_s(self) -> float | None:
        no_commit = self._rules.auto_commit_s is None or self._committing.is_under_way
        commit_s = None if no_commit else self._commit_due_s
        times_s = [each for each in (commit_s, self._try_again_s) if each is not None]
        return max(0.001, min(times_s) - self._loop.time()) if times_s else None

    @property
    def calls_in_s(self) -> float | None:
        if self._committing.is_under_way:  # Only a poll of the caller starts the next commit.
            return max(0.001, self._commit_due_s - self._loop.time())
        return self.due_in_s

    def caller_is_busy(self, change: Change | None) -> None:
        rules = self._rules
        limit_s = rules.handler_timeout_s if change is None else rules.callback_timeout_s
        if change is not None and change.kind is ChangeKind.ASSIGNED:
            self._assigned_in = self.core.lives
        self.heartbeats.reader_is_busy(inf if limit_s is None else limit_s)

    def caller_is_back(self) -> None:
        assigned_in, self._assigned_in = self._assigned_in, None
        if assigned_in is not None and assigned_in != self.core.lives and self.heartbeats.is_given_up:
            self._is_too_slow = True
        self.heartbeats.reader_is_back()

    def finish(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.commits.finish(offsets)

    async def close(self) -> None:
        """Commit finished offsets, unless auto-commit is off, and leave the group; both share the close timeout."""
        deadline = Deadline(self._rules.close_timeout_s)
        try:
            await self._committing.close()
            if self._rules.auto_commit_s is not None:
                with suppress(MillstreamError):  # The messages are delivered again, to this member or another.
                    await self.commits.commit(self.commits.finished, deadline.left_s)
            await self.heartbeats.leave(deadline.left_s)
        finally:
            await self.heartbeats.stop()

    # Assignment changes.

    def _lose(self) -> Change | None:
        self.commits.life = self.core.lives
        self._announced_releases = frozenset()
        return self._lose_these(sorted(self._reading.readers))

    def _lose_these(self, lost: Iterable[TopicPartition]) -> Change | None:
        places = tuple(lost)
        for where in places:
            self._drop(where)
        return Change(ChangeKind.LOST, places) if places and self._rules.has_callbacks else None

    async def _reconcile(self) -> Change | None:
        core, readers = self.core, self._reading.readers
        life = core.lives
        named = await self._named(core.target)
        made_anew = sorted(where for where in readers if named.get(where, self._keys[where]) != self._keys[where])
        if made_anew and (lost := self._lose_these(made_anew)) is not None:
            return lost
        releases = [where for where in readers if where not in named]
        if releases and self._rules.has_callbacks and not self._announced_releases.issuperset(releases):
            self._announced_releases = frozenset(releases)
            return Change(ChangeKind.REVOKED, tuple(sorted(releases)))
        regained = [where for where in named if where in self._announced_releases and where in readers]
        await self._release(releases)
        taken = {where: key for where, key in named.items() if where not in readers}
        if life == core.lives:
            await self._take(taken)
        if life != core.lives:
            return None
        core.own(frozenset(key for where, key in named.items() if where in readers))
        self.heartbeats.soon()
        return self._assigned(tuple(sorted([*taken, *regained])))

    def _assigned(self, places: tuple[TopicPartition, ...]) -> Change | None:
        """Return the change for `on_assigned`.

        If the last `on_assigned` took so long that the member lost its partitions, it is skipped once. Otherwise it
        would lose them again, and the consumer would never read a message.
        """
        if not places or not self._rules.has_callbacks:
            return None
        if self._is_too_slow:
            self._is_too_slow = False
            partitions, timeout_s = ",".join(map(str, places)), self._rules.callback_timeout_s
            event = "callback skipped once, it timed out before"
            log.error(LogEvent(event, callback="on_assigned", partitions=partitions, timeout_s=timeout_s))
            return None
        return Change(ChangeKind.ASSIGNED, places)

    async def _named(self, target: Share) -> dict[TopicPartition, tuple[TopicId, int]]:
        """Map the assigned partitions to topic names; partitions of a topic with an unknown id are left for later."""
        names = await self.topics.names(target, {topic_id for topic_id, _ in self._keys.values()})
        return {TopicPartition(names[key[0]], key[1]): key for key in sorted(target) if key[0] in names}

    async def _release(self, places: Sequence[TopicPartition]) -> None:
        if places and self._rules.auto_commit_s is not None:
            await self._committing.close()  # A later retry could overwrite a commit of the next member.
            finished = self.commits.finished
            try:
                await self.commits.commit(
                    {where: finished[where] for where in places if where in finished}, COMMIT_TIMEOUT_S
                )
            except MillstreamError:
                pass  # The next member starts at the last committed offset.
        for where in places:
            self._drop(where)
        self._announced_releases = frozenset()

    def _drop(self, where: TopicPartition) -> None:
        self._reading.release(where)
        self.commits.drop(where)
        self._keys.pop(where, None)

    async def _take(self, places: Mapping[TopicPartition, tuple[TopicId, int]]) -> None:
        """Start to read these partitions at their committed offsets, or at the start position if they have none.

        A partition that was added after this member started is read from its beginning.
        """
        if not places:
            return
        life = self.core.lives
        deadline = Deadline(COMMIT_TIMEOUT_S)
        request = group_requests.fetch_offsets(self.core.group_id, list(places), self.core.ref)
        committed = await self._coordinators.ask(self.core.group_id, request, deadline)
        new = {where: key for where, key in places.items() if where not in committed}
        added = [where for where, (topic_id, number) in new.items() if number >= self.topics.counts[topic_id]]
        found = await self._start.find(self._asking, new.keys() - set(added), deadline)
        found |= dict.fromkeys(added, ADDED_FROM)
        if life != self.core.lives:
            return
        for where, key in places.items():
            offset = committed[where].offset if where in committed else found[where]
            self._keys[where] = key
            self._reading.take(where, offset, key[0])
            self.commits.take(where, key[0], offset, is_committed=where in committed)
        if found and not self._start.is_beginning:
            self._commit_due_s = self._loop.time()  # Until the commit, the group's lag counts from the beginning.
