"""Holds a consumer's state of one partition beside its feed: the delivered offset and the stop offset."""

from millstream.sdk.feed.partition_feed import PartitionFeed


class PartitionReader:
    """Reads one partition for a consumer.

    Invariant: `delivered_offset <= feed.offset`; chunks of this feed hold the offsets between them, in order.
    """

    __slots__ = ("delivered_offset", "feed", "high_watermark", "stop_offset")

    def __init__(self, feed: PartitionFeed, stop_offset: int | None = None) -> None:
        self.feed = feed
        self.delivered_offset = feed.offset
        """The offset after the last message that the caller took."""
        self.stop_offset = stop_offset
        """The offset before which reading ends; None for no end."""
        self.high_watermark = -1
        """The partition's high watermark in the last answer; -1 before the first."""

    @property
    def is_finished(self) -> bool:
        """True once the caller has taken everything before the stop offset."""
        return self.stop_offset is not None and self.delivered_offset >= self.stop_offset

    @property
    def wants_more(self) -> bool:
        return not self.feed.is_paused and (self.stop_offset is None or self.feed.offset < self.stop_offset)

    def taken(self, offset: int) -> None:
        """The caller has taken everything before this offset, so its records could be decoded."""
        assert offset <= self.feed.offset, f"{self.feed.where}: nothing behind {self.feed.offset} was fetched"
        self.delivered_offset = offset
        self.feed.decoded()

    def move(self, offset: int) -> None:
        """Continue at this offset; the owner discards chunks that were fetched before."""
        self.feed.seek(offset)
        self.delivered_offset = offset
