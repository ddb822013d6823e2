"""Appends the batches that clients send, at once or after a worker has decoded them.

Batches that must be decoded first are appended later, in their order of arrival over all requests (see
`opened_batches`).
"""

import asyncio
from collections.abc import Sequence

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.append_result import AppendResult
from millstream.partition.leadership import Leadership
from millstream.partition.opened_batches import BatchOpener
from millstream.partition.produce_rules import has_producer, read_producer
from millstream.partition.put_deduplication import PUT, put, put_job
from millstream.partition.watermark import ACKS_LEADER, ACKS_NONE

Appended = AppendResult | asyncio.Future[AppendResult]
"""The result of an append, or its future while the batch is being decoded."""

_EMPTY = memoryview(b"")


class Appender:
    """Appends the batches of all connections. One appender per broker keeps the order of each partition."""

    def __init__(self) -> None:
        self.opener = BatchOpener()

    def append(self, partition: Leadership, batch: memoryview | None, acks: int, *, sender: int = 0) -> Appended:
        """Append a batch of records. `sender` is the number of its connection, or 0.

        A write with acks=0 has an acknowledgement like acks=1, because later requests of its connection wait for it.
        Raises the errors of `Leadership.append`.
        """
        if partition.is_internal:
            raise _internal_topic(partition)
        records = _EMPTY if batch is None else batch
        if sender and has_producer(records):
            partition.replica.producers.sent_by(read_producer(records)[0], sender=sender)
        if self.opener.is_needed(partition, len(records)):
            return self.opener.append(partition, records, acks or ACKS_LEADER)
        return partition.append(records, acks or ACKS_LEADER)

    def put(
        self,
        partition: Leadership,
        batch: memoryview | None,
        message_ids: Sequence[bytes] | None,
        acks: int,
        *,
        sender: int = 0,
    ) -> Appended:
        """Append a batch of a Puts request, with natural message ids if the request has them."""
        if partition.is_internal:
            raise _internal_topic(partition)
        if message_ids is not None and acks == ACKS_NONE:
            raise MillstreamError(ErrorCode.INVALID_REQUIRED_ACKS, "message ids require acks=1 or acks=-1, not acks=0")
        records = _EMPTY if batch is None else batch
        if sender and has_producer(records):
            partition.replica.producers.sent_by(read_producer(records)[0], sender=sender)
        job = put_job(partition, records, message_ids)
        if job is not None or self.opener.is_needed(partition, len(records)):
            return self.opener.append(partition, records, acks or ACKS_LEADER, job or PUT)
        return put(partition, records, acks or ACKS_LEADER)


def _internal_topic(partition: Leadership) -> MillstreamError:
    return MillstreamError(ErrorCode.INVALID_TOPIC, f"only the broker writes to {partition.topic}")
