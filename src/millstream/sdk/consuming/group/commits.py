"""What a member of a group has finished, and what of that its group knows.

Only partitions that are the member's are in here. What it held in an earlier life (see `member_core`) is another's by
now, and is refused before anybody is asked.
"""

import asyncio
from collections.abc import Mapping
from uuid import UUID

from millstream.model.errors import ErrorCode, MillstreamError
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
        """The life that all of this belongs to."""
        self._committed: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, UUID] = {}
        self._turn = asyncio.Lock()
        """Held by the one commit at a time: a repeated earlier one would undo a later one."""
        self._coordinators = coordinators
        self._core = core
        self._heartbeats = heartbeats

    def take(self, where: TopicPartition, topic_id: UUID, offset: int, *, is_committed: bool) -> None:
        """A partition that is the member's now, and where it goes on."""
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
        """Whether something is finished that the group does not know of."""
        return any(self._committed.get(where) != offset for where, offset in self.finished.items())

    async def commit(self, offsets: Mapping[TopicPartition, int], timeout_s: float, metadata: str = "") -> None:
        """Commit what differs from what is committed; a member whose epoch has moved on meanwhile asks with the new.

        FENCED_MEMBER_EPOCH or UNKNOWN_MEMBER_ID when the group has gone on without the member, UNKNOWN_TOPIC_ID when
        the topic was deleted, and perhaps made again, REQUEST_TIMED_OUT when the commit before takes all of the time.
        """
        deadline = Deadline(timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                await self._turn.acquire()
        except TimeoutError:
            text = f"group {self._core.group_id!r}: the commit before this one is not answered"
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
                # The member may be in the group again, but what it holds is from before: others go on from there.
                text = f"group {self._core.group_id!r} has given the partitions of this consumer to others"
                raise MillstreamError(ErrorCode.FENCED_MEMBER_EPOCH, text)
            ref = self._core.ref
            try:
                await self._coordinators.commit(self._core.group_id, rows, ref, deadline, self._topic_ids)
            except MillstreamError as error:
                if error.code is not _STALE or deadline.is_over:
                    raise
                while self._core.epoch == ref.epoch and not deadline.is_over:
                    await self._heartbeats.ask_now(deadline)
                continue
            self._committed.update((where, offset) for where, offset in changed.items() if where in self.finished)
            return
