"""What a reader says: from where, how much, how long to wait, and in which form."""

from typing import Annotated

import msgspec
from msgspec import Meta

from millstream.gateway.http.resources.common_parameters import ClusterName, Partition, TopicName
from millstream.gateway.http.resources.event_json import Format
from millstream.gateway.operations.clusters import DEFAULT


class ReadParameters(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """From where, how much, and how long to wait for the first."""

    topic: TopicName
    cluster: ClusterName = DEFAULT
    partition: Partition | None = None
    offset: Annotated[
        str | int | None,
        Meta(description="`beginning`, `latest`, an offset, or the `next` of the last answer, such as `0:12,1:40`."),
    ] = None
    time: Annotated[
        str | int | None,
        Meta(
            description="From the first message at or after this: `2025-01-31T12:00:00Z`, milliseconds, or `10m` ago."
        ),
    ] = None
    group: (
        Annotated[str, Meta(min_length=1, description="Read as one of this group, which keeps the place.")] | None
    ) = None
    consumer: Annotated[str, Meta(min_length=1, description="Who reads, in the group.")] | None = None
    auto_commit: Annotated[bool, Meta(description="Commit first what this consumer was handed last.")] = False
    wait: Annotated[float, Meta(ge=0, le=60, description="Seconds to wait for the first message.")] = 5.0
    max_messages: Annotated[int, Meta(ge=1, le=10_000, description="Most messages of one answer.")] = 500
    max_bytes: Annotated[int, Meta(ge=1, le=16 * 2**20, description="About the most bytes of one answer.")] = 2**20
    format: Annotated[Format, Meta(description="How values are shown.")] = "auto"
    follow: Annotated[bool, Meta(description="As lines of JSON: go on for ever. Server-sent events always do.")] = False
