"""A member of a group reads what the group's coordinator gives it (KIP-848), from where the group has committed.

Partitions change hands only while the caller asks for messages: what is in work is never pulled from under it. What the
group knows goes on by itself in the background (see `heartbeats`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from uuid import UUID

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.admin import group_requests
from millstream.sdk.admin.groups import Coordinators
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.consuming.fetcher import Fetcher
from millstream.sdk.consuming.group.commits import Commits
from millstream.sdk.consuming.group.heartbeats import Heartbeats
from millstream.sdk.consuming.group.member_core import OUTSIDE, MemberCore
from millstream.sdk.consuming.partition_source import Change, ChangeKind
from millstream.sdk.consuming.start_positions import StartPositions
from millstream.sdk.single_flight import SingleFlight
from millstream.seams.entropy import random_uuid

COMMIT_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 3.0
HANDLER_TIMEOUT_S = 300.0
CALLBACK_TIMEOUT_S = 30.0

log = logging.getLogger("millstream.sdk.consumer")

_INT32_MAX = 2**31 - 1
_TRY_AGAIN_S = 0.05


@dataclass(frozen=True, slots=True)
class GroupRules:
    """How a consumer takes part in its group."""

    group_id: str
    auto_commit_s: float | None = 5.0
    """How often finished offsets are committed; None leaves that to the caller."""
    handler_timeout_s: float | None = HANDLER_TIMEOUT_S
    """How long the caller may give no sign of life before its partitions go to others; None for ever."""
    callback_timeout_s: float = CALLBACK_TIMEOUT_S
    """The same for what it is told of changes."""
    close_timeout_s: float = CLOSE_TIMEOUT_S
    """How long the last commit and leaving may take together."""
    instance_id: str | None = None
    """Makes a static member: one that may go away and come back under this name and finds its partitions again."""
    assignor: str | None = None
    """The coordinator's way to share out, `uniform` or `range`; None leaves it to it."""
    tells: bool = False
    """Whether somebody wants to be told of changes."""

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the coordinator waits for partitions that the caller has in work."""
        return min(_INT32_MAX, int(1000 * min(self.handler_timeout_s or inf, _INT32_MAX)))


class ConsumerMembership:
    """`progress` gives another number when the caller has given a sign of life; `changed` is called when there may be
    something to follow."""

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
        self._topics = tuple(dict.fromkeys(topics))
        self._start = start
        self._rules = rules
        self._coordinators = Coordinators(asking)
        self._loop = asyncio.get_running_loop()
        self.core = MemberCore(
            rules.group_id,
            str(random_uuid(asking.entropy)),
            self._topics,
            rebalance_timeout_ms=rules.rebalance_timeout_ms,
            instance_id=rules.instance_id,
            assignor=rules.assignor,
        )
        self.heartbeats = Heartbeats(self._coordinators, self.core, asking.entropy, progress=progress, changed=changed)
        self.commits = Commits(self._coordinators, self.core, self.heartbeats)
        self._keys: dict[TopicPartition, tuple[UUID, int]] = {}
        """What the coordinator calls the partitions that are read."""
        self._told_to_release: frozenset[TopicPartition] = frozenset()
        self._assigned_in: int | None = None
        """The life in which the caller is being told what is assigned to it; None while it is not."""
        self._is_too_slow = False
        """Whether it was given up while it was told that."""
        self.missing: Sequence[str] = ()
        """Of its topics, those that were not there when they were last looked for."""
        self._committing = SingleFlight(self._commit_finished, "commit of what is finished", changed)
        self._commit_due_s = 0.0
        self._try_again_s: float | None = None

    # Source

    async def start(self, timeout_s: float) -> None:
        await self.heartbeats.join(timeout_s)
        self._commit_due_s = self._loop.time() + (self._rules.auto_commit_s or 0.0)
        with suppress(MillstreamError):  # They are looked for again when there is something to read.
            await self._names()
        if self.missing:
            names = ", ".join(self.missing)
            log.warning("group %s reads topics that are not there, and waits for them: %s", self.core.group_id, names)

    @property
    def wants_attention(self) -> bool:
        """Whether the caller should come by soon, even if it has messages left."""
        core = self.core
        return core.owned != core.target or self.commits.life != core.lives or self.heartbeats.failure is not None

    @property
    def is_changed(self) -> bool:
        return self.wants_attention

    async def follow(self) -> Change | None:
        """Give up what is to be given up, then take what is to be taken; what fails for now is tried again later."""
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
        """Commit what is finished, if it is time."""
        self._committing.hear()
        interval_s = self._rules.auto_commit_s
        if interval_s is None or self._committing.is_under_way or self._loop.time() < self._commit_due_s:
            return
        self._commit_due_s = self._loop.time() + interval_s
        if self.commits.is_behind:
            self._committing.begin()

    async def _commit_finished(self) -> None:
        assert self._rules.auto_commit_s is not None, "who commits by itself has said how often"
        try:
            await self.commits.commit(self.commits.finished, self._rules.auto_commit_s)
        except MillstreamError as error:
            if not (error.code.retriable or error.code in OUTSIDE):
                raise
            self.heartbeats.soon()  # It tells whether this member is still in the group.

    @property
    def is_over(self) -> bool:
        return False

    @property
    def due_in_s(self) -> float | None:
        times_s = []
        if self._rules.auto_commit_s is not None and not self._committing.is_under_way:
            times_s.append(self._commit_due_s)
        if self._try_again_s is not None:
            times_s.append(self._try_again_s)
        return max(0.001, min(times_s) - self._loop.time()) if times_s else None

    @property
    def calls_in_s(self) -> float | None:
        if self._committing.is_under_way:  # Nobody but the caller sees to the next one.
            return max(0.001, self._commit_due_s - self._loop.time())
        return self.due_in_s

    def caller_is_busy(self, told: Change | None) -> None:
        rules = self._rules
        limit_s = rules.handler_timeout_s if told is None else rules.callback_timeout_s
        if told is not None and told.kind is ChangeKind.ASSIGNED:
            self._assigned_in = self.core.lives
        self.heartbeats.reader_is_busy(inf if limit_s is None else limit_s)

    def caller_is_back(self) -> None:
        told_in, self._assigned_in = self._assigned_in, None
        if told_in is not None and told_in != self.core.lives and self.heartbeats.is_given_up:
            self._is_too_slow = True
        self.heartbeats.reader_is_back()

    def finish(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.commits.finish(offsets)

    async def close(self) -> None:
        """Commit what is finished (unless that is done by hand) and leave, each as far as it is possible in the time
        that closing may take."""
        deadline = Deadline(self._rules.close_timeout_s)
        try:
            await self._committing.close()
            if self._rules.auto_commit_s is not None:
                with suppress(MillstreamError):  # It comes again, at this consumer or another.
                    await self.commits.commit(self.commits.finished, deadline.left_s)
            await self.heartbeats.leave(deadline.left_s)
        finally:
            await self.heartbeats.stop()

    # Following the group.

    def _lose(self) -> Change | None:
        self.commits.life = self.core.lives
        self._told_to_release = frozenset()
        return self._lose_these(sorted(self._reading.readers))

    def _lose_these(self, lost: Iterable[TopicPartition]) -> Change | None:
        places = tuple(lost)
        for where in places:
            self._drop(where)
        return Change(ChangeKind.LOST, places) if places and self._rules.tells else None

    async def _reconcile(self) -> Change | None:
        core, readers = self.core, self._reading.readers
        life = core.lives
        named = await self._named(core.target)
        made_anew = sorted(where for where in readers if named.get(where, self._keys[where]) != self._keys[where])
        if made_anew and (lost := self._lose_these(made_anew)) is not None:
            return lost
        releases = [where for where in readers if where not in named]
        if releases and self._rules.tells and not self._told_to_release.issuperset(releases):
            self._told_to_release = frozenset(releases)
            return Change(ChangeKind.REVOKED, tuple(sorted(releases)))
        regained = [where for where in named if where in self._told_to_release and where in readers]
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
        """Told, unless that lost the caller its partitions the last time: it would again, and nothing would be read."""
        if not places or not self._rules.tells:
            return None
        if self._is_too_slow:
            self._is_too_slow = False
            names = ", ".join(map(str, places))
            limit_s = self._rules.callback_timeout_s
            log.error("%s: on_assigned is left out this once, for it took longer than %g s before", names, limit_s)
            return None
        return Change(ChangeKind.ASSIGNED, places)

    async def _named(self, target: Iterable[tuple[UUID, int]]) -> dict[TopicPartition, tuple[UUID, int]]:
        """The assigned partitions by their topics' names; those of a topic we have not heard of are left for later."""
        names = await self._names()
        if not {topic_id for topic_id, _ in target} <= names.keys():
            for topic in self._topics:
                self._asking.cluster.forget(topic)
            names = await self._names()
        return {TopicPartition(names[key[0]], key[1]): key for key in sorted(target) if key[0] in names}

    async def _names(self) -> dict[UUID, str]:
        """Its topics' names by their ids; `missing` has those that have none."""
        names: dict[UUID, str] = {}
        for topic, view in (await self._asking.cluster.topics(self._topics, Deadline(COMMIT_TIMEOUT_S))).items():
            if not isinstance(view, MillstreamError):
                names[view.topic_id] = topic
            elif view.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise view
        self.missing = sorted(set(self._topics) - set(names.values()))
        return names

    async def _release(self, places: Sequence[TopicPartition]) -> None:
        if places and self._rules.auto_commit_s is not None:
            await self._committing.close()  # Tried again, it could undo what the next member has committed.
            finished = self.commits.finished
            try:
                await self.commits.commit(
                    {where: finished[where] for where in places if where in finished}, COMMIT_TIMEOUT_S
                )
            except MillstreamError:
                pass  # The next member begins where the last commit was.
        for where in places:
            self._drop(where)
        self._told_to_release = frozenset()

    def _drop(self, where: TopicPartition) -> None:
        self._reading.release(where)
        self.commits.drop(where)
        self._keys.pop(where, None)

    async def _take(self, places: Mapping[TopicPartition, tuple[UUID, int]]) -> None:
        """Begin where the group has committed, or else at the start that was chosen."""
        if not places:
            return
        life = self.core.lives
        deadline = Deadline(COMMIT_TIMEOUT_S)
        request = group_requests.fetch_offsets(self.core.group_id, list(places), self.core.ref)
        committed = await self._coordinators.ask(self.core.group_id, request, deadline)
        found = await self._start.find(self._asking, [where for where in places if where not in committed], deadline)
        if life != self.core.lives:
            return
        for where, key in places.items():
            offset = committed[where].offset if where in committed else found[where]
            self._keys[where] = key
            self._reading.take(where, offset, key[0])
            self.commits.take(where, key[0], offset, is_committed=where in committed)
