"""Tracks the finished offsets of a group member and commits those that its group does not have yet.

It holds only partitions that the member owns. Partitions of an earlier life (see `member_core`) belong to other members
by now, so a commit for them fails without a request.
"""

import asyncio
from collections.abc import Mapping

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import TopicId
from millstream.model.names import TopicPartition
from millstream.sdk.admin.group_results import CommittedOffset
from millstream.sdk.admin.groups import Coordinators
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.consuming.group.heartbeats import Heartbeats
from millstream.sdk.consuming.group.member_core import MemberCore

_STALE = ErrorCode.STALE_MEMBER_EPOCH


class Commits:
    def __init__(self, coordinators: Coordinators, core: MemberCore, heartbeats: Heartbeats) -> None:
        self.finished: dict[TopicPartition, int] = {}
        self.life = core.lives
        """The member's life in which these offsets are valid."""
        self._committed: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, TopicId] = {}
        self._turn = asyncio.Lock()
        """Allows one commit at a time: the retry of an earlier commit would overwrite a later one."""
        self._coordinators = coordinators
        self._core = core
        self._heartbeats = heartbeats

    def take(self, where: TopicPartition, topic_id: TopicId, offset: int, *, is_committed: bool) -> None:
        """Add a partition that the member owns now, with the offset at which it continues."""
        self._topic_ids[where.topic] = topic_id
        self.finished[where] = offset
        if is_committed:
            self._committed[where] = offset

    def drop(self, where: TopicPartition) -> None:
        self.finished.pop(where, None)
        self._committed.pop(where, None)

    def finish(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.finished.update((where, offset) for where, offset in offsets.items() if where in self.finished)

    @property
    def is_behind(self) -> bool:
        """True if a finished offset is not committed."""
        return any(self._committed.get(where) != offset for where, offset in self.finished.items())

    async def commit(self, offsets: Mapping[TopicPartition, int], timeout_s: float, metadata: str = "") -> None:
        """Commit the offsets that differ from the committed ones; retry with the new epoch if it has changed.

        Raises FENCED_MEMBER_EPOCH or UNKNOWN_MEMBER_ID if the group has removed the member, UNKNOWN_TOPIC_ID if the
        topic was deleted (and perhaps created again), and REQUEST_TIMED_OUT if an earlier commit takes all of the time.
        """
        deadline = Deadline(timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                await self._turn.acquire()
        except TimeoutError:
            text = f"group {self._core.group_id!r}: timed out waiting for the answer to an earlier commit"
            raise MillstreamError(ErrorCode.REQUEST_TIMED_OUT, text) from None
        try:
            await self._commit(offsets, metadata, deadline)
        finally:
            self._turn.release()

    async def _commit(self, offsets: Mapping[TopicPartition, int], metadata: str, deadline: Deadline) -> None:
        changed = {
            where: offset for where, offset in offsets.items() if metadata or self._committed.get(where) != offset
        }
        if not changed:
            return
        rows = {where: CommittedOffset(offset, metadata=metadata) for where, offset in changed.items()}
        while True:
            if self.life != self._core.lives:
                # The member may have joined again, but these offsets are of partitions that other members read now.
                text = f"group {self._core.group_id!r} has assigned the partitions of this consumer to other members"
                raise MillstreamError(ErrorCode.FENCED_MEMBER_EPOCH, text)
            ref = self._core.ref
            try:
                await self._coordinators.commit(self._core.group_id, rows, ref, deadline, self._topic_ids)
            except MillstreamError as error:
                if error.code is not _STALE or deadline.is_over:
                    raise
                while self._core.epoch == ref.epoch and not deadline.is_over:
                    await self._heartbeats.beat_now(deadline)
                continue
            self._committed.update((where, offset) for where, offset in changed.items() if where in self.finished)
            return
