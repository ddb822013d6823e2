"""Reads one partition for a push subscription and keeps the subscriber's position in it."""

from collections.abc import Callable

from millstream.broker.dispatch.capabilities import ImageSource, leader_for
from millstream.broker.push.flow_control import AvailableWindow, PartitionFlow
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
from millstream.model.waiters import Cancel
from millstream.partition.leadership import Leadership
from millstream.partition.offset_reader import OffsetNotReachedError
from millstream.storage.log.log_reader import Stretch
from millstream.wire.subscribe import BEGINNING, END, Delivery

PartitionName = tuple[str, int]
"""The name of a topic and the number of a partition."""


def _do_nothing() -> None:
    """Cancel nothing. This is the cancel function of a feed that does not wait."""


class PartitionPush:
    """Reads a partition portion by portion, each from the end of the previous one.

    A position after the log end waits like the log end itself. A position that was deleted moves to `otherwise`, which
    is END or BEGINNING. With NOWHERE it is an error.
    """

    __slots__ = ("_cancel", "_cluster", "_leader_epoch", "_otherwise", "flow", "partition")

    def __init__(self, partition: Leadership, position: Offset, otherwise: int, cluster: ImageSource) -> None:
        """`cluster` has the current leader, which the row names when this leadership has ended."""
        self.partition = partition
        self.flow = PartitionFlow(position)
        self._leader_epoch = partition.leader_epoch
        self._otherwise = otherwise
        self._cluster = cluster
        self._cancel: Cancel = _do_nothing

    @property
    def name(self) -> PartitionName:
        return self.partition.topic, self.partition.number

    def read(self, room: AvailableWindow) -> Stretch | None:
        """Return the next portion within the window: b"" if there is none yet, None if it must be read from disk."""
        self.partition.check_leader_epoch(self._leader_epoch)
        position = self.flow.position
        try:
            return self.partition.reader.read(position, max_bytes=room.size_bytes, max_messages=room.messages)
        except OffsetNotReachedError:
            return b"", position
        except MillstreamError as error:
            self._leave(error)
            return self.read(room)

    async def read_cold(self, room: AvailableWindow) -> Stretch:
        """Read the next portion from disk. Returns b"" if there is none or if the position had to move."""
        position = self.flow.position
        try:
            return await self.partition.reader.read_cold(
                position, max_bytes=room.size_bytes, max_messages=room.messages
            )
        except OffsetNotReachedError:
            pass
        except MillstreamError as error:
            self._leave(error)
        return b"", self.flow.position

    def wait(self, callback: Callable[[], None]) -> None:
        """Call `callback` once there is data to read or the partition is closed."""
        self._cancel = self.partition.reader.wait(self.flow.position, callback)

    def stop_waiting(self) -> None:
        self._cancel()

    def row(self, error: MillstreamError | None = None) -> Delivery:
        """Return a row with the state of this feed, without records."""
        partition, at = self.partition, self.flow.position
        return Delivery(
            *self.name,
            error.code.number if error else 0,
            self._leader_epoch,
            at,
            at,
            partition.high_watermark,
            partition.log.start_offset,
            error.detail if error else None,
            current_leader=leader_for(error, self._cluster.image, *partition.key) if error else None,
        )

    def _leave(self, error: MillstreamError) -> None:
        """Move to `otherwise` if the position was deleted. Raises any other error."""
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or self._otherwise not in (END, BEGINNING):
            raise error
        partition = self.partition
        self.flow.move(partition.high_watermark if self._otherwise == END else partition.log.start_offset)
