"""Defines the result of an append."""

from msgspec import Struct

from millstream.model.limits import NO_TIMESTAMP
from millstream.partition.watermark import Acknowledgement


class AppendResult(Struct, eq=False):
    """The offset of a stored batch, and its acknowledgement.

    `acknowledgement` is None if the batch is already acknowledged or acks=0. `is_duplicate` is True if the batch was
    stored before.
    """

    base_offset: int
    log_start_offset: int
    acknowledgement: Acknowledgement | None
    is_duplicate: bool = False
    log_append_time_ms: int = NO_TIMESTAMP
