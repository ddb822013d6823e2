"""Groups seen from outside: who belongs to them, and how far they are."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.gateway.clusters import Cluster, Member
from penstock.gateway.failures import invalid
from penstock.gateway.http.asked import Asked
from penstock.gateway.http.named import Offset, OfGroup, Page, Partition, TopicName
from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.names import TopicPartition
from penstock.sdk.group_answers import CommittedOffset, GroupDescription, GroupListing


class ListedGroup(msgspec.Struct, kw_only=True):
    group: str
    kind: str
    protocol: str
    state: str


class ListedGroups(msgspec.Struct, kw_only=True):
    """In the order of their names; `after` asks for those that follow, and is null at the end."""

    groups: list[ListedGroup]
    after: str | None


class ShownPlace(msgspec.Struct, kw_only=True):
    topic: str
    partition: int


class ShownMember(msgspec.Struct, kw_only=True):
    member: str
    instance: str | None
    client: str
    host: str
    epoch: int
    topics: Sequence[str]
    partitions: list[ShownPlace]


class ShownGroup(msgspec.Struct, kw_only=True):
    group: str
    kind: str
    state: str
    protocol: str
    assignor: str
    epoch: int
    members: list[ShownMember]


class ShownOffset(msgspec.Struct, kw_only=True):
    """`lag` is how many messages are behind it, null where that is not known."""

    topic: str
    partition: int
    offset: int
    metadata: str
    lag: int | None


class ShownOffsets(msgspec.Struct, kw_only=True):
    group: str
    offsets: list[ShownOffset]


class NewOffset(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    topic: TopicName
    partition: Partition
    offset: Annotated[Offset, Meta(description="The next message that the group will read.")]
    metadata: str = ""


class NewOffsets(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Where a group shall go on. That is for groups whose members are away."""

    offsets: Annotated[list[NewOffset], Meta(min_length=1, max_length=10_000)]


class GroupPlaces(OfGroup, kw_only=True):
    """Which of its offsets are meant; all without a topic."""

    topic: TopicName | None = None
    partition: Partition | None = None


async def list_groups(asked: Asked) -> ListedGroups:
    parameters: Page = asked.parameters
    cluster = asked.site.clusters.get(parameters.cluster)
    lists = await cluster.all(lambda member: member.client.groups.list(timeout=member.timeout_s))
    found: dict[str, GroupListing] = {}
    for listing in (each for rows in lists for each in rows):
        found.setdefault(listing.group_id, listing)
    names = sorted(name for name in found if parameters.after is None or name > parameters.after)
    shown = names[: parameters.limit]
    return ListedGroups(
        groups=[
            ListedGroup(group=name, kind=found[name].kind, protocol=found[name].protocol_type, state=found[name].state)
            for name in shown
        ],
        after=shown[-1] if len(names) > len(shown) else None,
    )


async def describe_group(asked: Asked) -> ShownGroup:
    """GROUP_ID_NOT_FOUND where no broker of the cluster knows it."""
    parameters: OfGroup = asked.parameters
    described = await _described(asked.site.clusters.get(parameters.cluster), parameters.group)
    first = described[0]
    return ShownGroup(
        group=first.group_id,
        kind=first.kind,
        state=first.state,
        protocol=first.protocol_type,
        assignor=first.assignor,
        epoch=first.epoch,
        members=[
            ShownMember(
                member=each.member_id,
                instance=each.instance_id,
                client=each.client_id,
                host=each.client_host,
                epoch=each.epoch,
                topics=each.topics,
                partitions=[ShownPlace(topic=topic, partition=partition) for topic, partition in each.partitions],
            )
            for group in described
            for each in group.members
        ],
    )


async def _described(cluster: Cluster, group: str) -> list[GroupDescription]:
    found: list[GroupDescription] = []
    failure: PenstockError | None = None
    for member in cluster.members:
        try:
            found.append(await member.client.groups.describe(group, timeout=member.timeout_s))
        except PenstockError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            failure = error
    if not found and failure is not None:
        raise failure
    return found


async def delete_group(asked: Asked) -> None:
    """NON_EMPTY_GROUP while it has members, GROUP_ID_NOT_FOUND where it is unknown."""
    parameters: OfGroup = asked.parameters
    cluster = asked.site.clusters.get(parameters.cluster)
    missing: list[PenstockError] = []
    for member in cluster.members:
        try:
            await member.client.groups.delete(parameters.group, timeout=member.timeout_s)
        except PenstockError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            missing.append(error)
    if len(missing) == len(cluster.members):
        raise missing[0]


async def get_group_offsets(asked: Asked) -> ShownOffsets:
    """What it has committed, with what is behind that; empty where it has committed nothing."""
    parameters: GroupPlaces = asked.parameters
    cluster = asked.site.clusters.get(parameters.cluster)
    rows: list[ShownOffset] = []
    for member in cluster.members:
        found = await member.client.groups.offsets(parameters.group, timeout=member.timeout_s)
        wanted = {where: offset for where, offset in found.items() if _is_wanted(where, parameters)}
        ends = await _ends(member, list(wanted))
        rows += [
            ShownOffset(
                topic=where.topic,
                partition=where.partition,
                offset=each.offset,
                metadata=each.metadata,
                lag=max(0, ends[where] - each.offset) if where in ends else None,
            )
            for where, each in sorted(wanted.items())
        ]
    return ShownOffsets(group=parameters.group, offsets=rows)


def _is_wanted(where: TopicPartition, parameters: GroupPlaces) -> bool:
    is_topic = parameters.topic is None or where.topic == parameters.topic
    return is_topic and (parameters.partition is None or where.partition == parameters.partition)


async def _ends(member: Member, places: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Where these partitions end; nothing where one of them cannot tell, since a topic was deleted, say."""
    if not places:
        return {}
    try:
        found = await member.client.offsets(dict.fromkeys(places, "latest"), timeout=member.timeout_s)
    except PenstockError:
        return {}
    return {where: listed.offset for where, listed in found.items()}


async def set_group_offsets(asked: Asked) -> ShownOffsets:
    """Set where a group goes on; UNKNOWN_MEMBER_ID while it has members."""
    parameters: OfGroup = asked.parameters
    new: NewOffsets = asked.body
    cluster = asked.site.clusters.get(parameters.cluster)
    by_member: dict[Member, dict[TopicPartition, CommittedOffset]] = {}
    for each in new.offsets:
        rows = by_member.setdefault(await cluster.home(each.topic), {})
        rows[TopicPartition(each.topic, each.partition)] = CommittedOffset(each.offset, metadata=each.metadata)
    for member, rows in by_member.items():
        await member.client.groups.commit(parameters.group, rows, timeout=member.timeout_s)
    return await get_group_offsets(_all_of_group(asked))


def _all_of_group(asked: Asked) -> Asked:
    parameters: OfGroup = asked.parameters
    asked.parameters = GroupPlaces(cluster=parameters.cluster, group=parameters.group)
    return asked


async def delete_group_offsets(asked: Asked) -> None:
    """Forget where a group was in a topic, or in one partition of it; GROUP_SUBSCRIBED_TO_TOPIC while it reads it."""
    parameters: GroupPlaces = asked.parameters
    if parameters.topic is None:
        raise invalid("topic", "it is missing; DELETE of the group itself forgets everything")
    member = await asked.site.clusters.get(parameters.cluster).home(parameters.topic)
    found = await member.client.groups.offsets(parameters.group, timeout=member.timeout_s)
    places = [where for where in found if _is_wanted(where, parameters)]
    if places:
        await member.client.groups.delete_offsets(parameters.group, places, timeout=member.timeout_s)
