"""Defines the parameters of a read: start position, size limits, wait and format."""

from typing import Annotated

from msgspec import Meta

from millstream.gateway.budget import Budget
from millstream.gateway.http.resources.common_parameters import (
    START_WORDS_TEXT,
    ClusterName,
    ConsumerNames,
    Partition,
    TopicName,
)
from millstream.gateway.http.resources.event_json import Format, answer_limit
from millstream.gateway.http.resources.unit_fields import OnBadBatch, ReadBytes, Wait, read_bytes, wait_s
from millstream.gateway.operations.clusters import DEFAULT
from millstream.gateway.operations.reads import ReadLimits


class ReadParameters(ConsumerNames, forbid_unknown_fields=True, kw_only=True):
    """Start position, size limits, wait and format of a read. With a group, the group keeps the position."""

    topic: TopicName
    cluster: ClusterName = DEFAULT
    partition: Partition | None = None
    offset: Annotated[
        str | int | None,
        Meta(description=f"{START_WORDS_TEXT}, an offset, or the `next` of the previous answer: `0:12,1:40`."),
    ] = None
    time: Annotated[
        str | int | None,
        Meta(
            description="The first message at or after `2025-01-31T12:00:00Z`, milliseconds since 1970, or `10m` ago."
        ),
    ] = None
    auto_commit: Annotated[bool, Meta(description="First commit the last delivery of this consumer.")] = False
    wait: Wait = 5.0
    max_messages: Annotated[int, Meta(ge=1, le=10_000, description="Most messages of one answer.")] = 500
    max_bytes: ReadBytes = 2**20
    format: Annotated[
        Format, Meta(description="Format of values: `auto` (text, or base64 if not UTF-8), `text`, `json` or `base64`.")
    ] = "auto"
    on_bad_batch: OnBadBatch = "raise"
    follow: Annotated[bool, Meta(description="With NDJSON: do not end the stream. Server-sent events never end.")] = (
        False
    )

    def limits(self, budget: Budget) -> ReadLimits:
        """Return the size limits and the wait. Raises INVALID_SETTING for a text that is not a duration or a size."""
        answer = answer_limit(budget, self.format)
        return ReadLimits(self.max_messages, read_bytes(self.max_bytes), wait_s(self.wait), self.on_bad_batch, answer)
