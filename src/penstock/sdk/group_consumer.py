"""A consumer that shares topics with the others of its group.

    async with client.group_consumer("billing", ["orders"], start="beginning") as consumer:
        async for batch in consumer:
            for record in batch.records:
                ...

The coordinator shares the partitions out (KIP-848); the consumer reads those that are its own, from where the group
has committed, or else from `start`. Whatever was handed out counts as finished when the next batch is asked for.
Finished offsets are committed by themselves every few seconds, when partitions go to another member and at the end;
with `GroupOptions(auto_commit_s=None)` only by `commit()`. After a crash, what was not committed comes again.

Partitions change hands only while the consumer is asked for a batch: a batch in work is never pulled from under its
reader. A reader that takes longer than `idle_s` over one loses its partitions, and joins again when it comes back.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self
from uuid import UUID

from penstock.model.entropy import random_uuid
from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.names import TopicPartition, check_topic_name
from penstock.records.record import Record
from penstock.sdk import requests, requests_groups
from penstock.sdk.asking import Asking
from penstock.sdk.consuming.heartbeats import Heartbeats
from penstock.sdk.consuming.member_core import MemberCore
from penstock.sdk.group_answers import CommittedOffset
from penstock.sdk.group_reading import GroupReading
from penstock.sdk.groups import Coordinators
from penstock.sdk.requests import BEGINNING, LATEST
from penstock.sdk.retry import Deadline

JOIN_TIMEOUT_S = 30.0
COMMIT_TIMEOUT_S = 10.0
LEAVE_TIMEOUT_S = 5.0

OUTSIDE = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
"""Refusals that say that the group has gone on without this consumer."""

_STALE = ErrorCode.STALE_MEMBER_EPOCH
_STARTS = {"beginning": BEGINNING, "latest": LATEST}

Released = Callable[[Sequence[TopicPartition]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class GroupOptions:
    auto_commit_s: float | None = 5.0
    """How often finished offsets are committed; None leaves that to `commit()`."""
    idle_s: float = 300.0
    """How long a reader may take over what it was handed."""
    instance_id: str | None = None
    """Makes a static member: one that may go away and come back under this name and finds its partitions again."""
    assignor: str | None = None
    """The coordinator's way to share out, `uniform` or `range`; None leaves it to it."""
    on_release: Released | None = None
    """Awaited before partitions are given to another member; here they can still be committed."""


class GroupBatch(NamedTuple):
    """Messages of one partition in order, and where its next ones begin."""

    topic: str
    partition: int
    records: list[Record]
    next_offset: int
    high_watermark: int


class GroupConsumer:
    """One member of a group; made by `client.group_consumer`. Use `async with`."""

    def __init__(
        self,
        asking: Asking,
        coordinators: Coordinators,
        group_id: str,
        topics: Sequence[str],
        start: str | int,
        options: GroupOptions,
    ) -> None:
        for topic in topics:
            check_topic_name(topic)
        self._asking = asking
        self._coordinators = coordinators
        self._topics = tuple(dict.fromkeys(topics))
        self._options = options
        self._start_time = _start_time(start)
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._core = MemberCore(
            group_id,
            str(random_uuid(asking.entropy)),
            self._topics,
            rebalance_timeout_ms=int(options.idle_s * 1000),
            instance_id=options.instance_id,
            assignor=options.assignor,
        )
        self._heartbeats = Heartbeats(
            coordinators, self._core, asking.entropy, progress=lambda: 0, changed=self._wake.set
        )
        self._reading = GroupReading(asking, self._wake.set)
        self._life = self._core.lives
        self._finished: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._commit_due_s = 0.0

    # What a reader uses.

    @property
    def member_id(self) -> str:
        return self._core.member_id

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions this consumer reads at the moment."""
        return tuple(sorted(self._reading.readers))

    def position(self, where: TopicPartition) -> int | None:
        """Where the next batch of this partition begins; None for one that is another's."""
        reader = self._reading.readers.get(where)
        return None if reader is None else reader.handed_offset

    async def poll(self, timeout_s: float | None = None) -> GroupBatch | None:
        """The next batch, of whichever partition has one; None when the time is over first.

        Failures that pass are waited out. Raised is what will not: a group or topic that is refused, damaged messages.
        """
        self._finish()
        self._heartbeats.reader_is_back()
        deadline = None if timeout_s is None else Deadline(timeout_s)
        while True:
            self._wake.clear()
            if self._heartbeats.failure is not None:
                raise self._heartbeats.failure
            await self._follow_group()
            await self._commit_if_due()
            await self._reading.advance()
            portion = self._reading.next_portion()
            if portion is not None:  # From here on nothing may fail: it counts as handed out.
                self._heartbeats.reader_is_busy(self._options.idle_s)
                fetched = portion.fetched
                return GroupBatch(*portion.reader.where, fetched.records, fetched.next_offset, fetched.high_watermark)
            if deadline is not None and deadline.is_over:
                return None
            await self._wait(deadline)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> GroupBatch:
        batch = await self.poll()
        assert batch is not None, "without a deadline there is a batch or an error"
        return batch

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int] | None = None,
        *,
        metadata: str = "",
        timeout_s: float = COMMIT_TIMEOUT_S,
    ) -> None:
        """Commit these, or everything handed out so far; afterwards the group goes on from there. `metadata` is a text
        of the caller's own that is kept beside the offsets.

        FENCED_MEMBER_EPOCH or UNKNOWN_MEMBER_ID when the partitions have gone to others meanwhile: what this consumer
        did with their messages, another does again.
        """
        if offsets is None:
            self._finish()
            offsets = dict(self._finished)
        await self._commit(offsets, timeout_s, metadata)

    async def start(self, timeout_s: float = JOIN_TIMEOUT_S) -> None:
        """Join the group; `async with` does it."""
        await self._heartbeats.join(timeout_s)
        self._commit_due_s = self._loop.time() + (self._options.auto_commit_s or 0.0)

    async def close(self) -> None:
        """Commit what is finished (unless that is done by hand) and leave, each as far as it is possible."""
        if self._options.auto_commit_s is not None:
            try:
                await self._commit(self._finished, LEAVE_TIMEOUT_S)
            except PenstockError:
                pass  # It comes again, at this consumer or another.
        self._reading.close()
        await self._heartbeats.leave(LEAVE_TIMEOUT_S)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._finish()  # Otherwise the batch in work may be half done.
        await self.close()

    # Following the group.

    async def _follow_group(self) -> None:
        """Give up what is to be given up, then take what is to be taken; what fails for now is tried again later."""
        core = self._core
        if self._life != core.lives:
            for where in list(self._reading.readers):
                self._drop(where)
            self._life = core.lives
        if core.owned == core.target:
            return
        target = core.target
        try:
            named = await self._named(target)
            await self._release([where for where in self._reading.readers if where not in named])
            if self._life == core.lives:
                await self._take([where for where in named if where not in self._reading.readers])
        except PenstockError as error:
            if not (error.code.retriable or error.code is _STALE or error.code in OUTSIDE):
                raise
            self._heartbeats.soon()
            await asyncio.sleep(0.05)
            return
        if self._life == core.lives:
            core.own(frozenset(key for where, key in named.items() if where in self._reading.readers))
            self._heartbeats.soon()

    async def _named(self, target: Iterable[tuple[UUID, int]]) -> dict[TopicPartition, tuple[UUID, int]]:
        """The assigned partitions by their topics' names; those of a topic we have not heard of are left for later."""
        cluster = self._asking.cluster
        names: dict[UUID, str] = {}
        wanted = {topic_id for topic_id, _ in target}
        for ask_anew in (False, True):
            for topic in self._topics:
                if ask_anew:
                    cluster.forget(topic)
                try:
                    view = await cluster.topic(topic, Deadline(COMMIT_TIMEOUT_S))
                except PenstockError as error:
                    if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        raise
                    continue
                names[view.topic_id] = topic
            if wanted <= names.keys():
                break
        return {TopicPartition(names[key[0]], key[1]): key for key in sorted(target) if key[0] in names}

    async def _release(self, places: Sequence[TopicPartition]) -> None:
        if not places:
            return
        if self._options.on_release is not None:
            await self._options.on_release(places)
        if self._options.auto_commit_s is not None:
            try:
                await self._commit(
                    {where: self._finished[where] for where in places if where in self._finished}, COMMIT_TIMEOUT_S
                )
            except PenstockError:
                pass  # The next member begins where the last commit was.
        for where in places:
            self._drop(where)

    def _drop(self, where: TopicPartition) -> None:
        self._reading.release(where)
        self._finished.pop(where, None)
        self._committed.pop(where, None)

    async def _take(self, places: Sequence[TopicPartition]) -> None:
        """Begin where the group has committed, or else at the start that was chosen."""
        if not places:
            return
        deadline = Deadline(COMMIT_TIMEOUT_S)
        request = requests_groups.fetch_offsets(self._core.group_id, places, self._core.ref)
        committed = await self._coordinators.ask(self._core.group_id, request, deadline)
        new = [where for where in places if where not in committed]
        found = await self._asking.leaders(dict.fromkeys(new, self._start_time), requests.list_offsets, deadline)
        late = [where for where in new if found[where].offset < 0]
        found |= await self._asking.leaders(dict.fromkeys(late, LATEST), requests.list_offsets, deadline)
        for where in places:
            offset = committed[where].offset if where in committed else found[where].offset
            self._reading.take(where, offset)
            self._finished[where] = offset
            if where in committed:
                self._committed[where] = offset

    # Committing.

    def _finish(self) -> None:
        for where, reader in self._reading.readers.items():
            self._finished[where] = reader.handed_offset

    async def _commit_if_due(self) -> None:
        interval_s = self._options.auto_commit_s
        if interval_s is None or self._loop.time() < self._commit_due_s:
            return
        self._commit_due_s = self._loop.time() + interval_s
        try:
            await self._commit(self._finished, interval_s)
        except PenstockError as error:
            if not (error.code.retriable or error.code in OUTSIDE):
                raise
            self._heartbeats.soon()  # It tells whether this consumer is still in the group.

    async def _commit(self, offsets: Mapping[TopicPartition, int], timeout_s: float, metadata: str = "") -> None:
        """Commit what differs from what is committed; a member whose epoch has moved on meanwhile asks with the new."""
        changed = {
            where: offset for where, offset in offsets.items() if metadata or self._committed.get(where) != offset
        }
        if not changed:
            return
        deadline = Deadline(timeout_s)
        rows = {where: CommittedOffset(offset, metadata=metadata) for where, offset in changed.items()}
        while True:
            if self._life != self._core.lives:
                # The member may be in the group again, but what it holds is from before: others go on from there.
                text = f"group {self._core.group_id!r} has given the partitions of this consumer to others"
                raise PenstockError(ErrorCode.FENCED_MEMBER_EPOCH, text)
            ref = self._core.ref
            try:
                await self._coordinators.commit(self._core.group_id, rows, ref, deadline)
            except PenstockError as error:
                if error.code is not _STALE or deadline.is_over:
                    raise
                self._heartbeats.soon()
                await self._new_epoch(ref.epoch, deadline)
                continue
            self._committed.update((where, offset) for where, offset in changed.items() if where in self._finished)
            return

    async def _new_epoch(self, epoch: int, deadline: Deadline) -> None:
        """Wait until a heartbeat has told the member's new epoch."""
        while self._core.epoch == epoch and self._heartbeats.failure is None and not deadline.is_over:
            self._wake.clear()
            await self._wait(deadline)

    async def _wait(self, deadline: Deadline | None) -> None:
        """Until something has changed, or it is time to commit or to try again."""
        limits_s = [] if deadline is None else [deadline.left_s]
        if self._options.auto_commit_s is not None:
            limits_s.append(max(0.001, self._commit_due_s - self._loop.time()))
        if self._reading.retry_in_s is not None:
            limits_s.append(self._reading.retry_in_s)
        try:
            async with asyncio.timeout(min(limits_s, default=None)):
                await self._wake.wait()
        except TimeoutError:
            pass


def _start_time(start: str | int) -> int:
    """As ListOffsets has it; INVALID_SETTING for what is no place to start."""
    place = _STARTS.get(start) if isinstance(start, str) else start
    if place is None:
        text = f"start={start!r}: expected 'beginning', 'latest' or a time in milliseconds"
        raise PenstockError(ErrorCode.INVALID_SETTING, text)
    return place
