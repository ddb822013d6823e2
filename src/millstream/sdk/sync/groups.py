# Written by scripts/sync.py from aio/groups.py: change that, and run it again.
"""Groups seen from outside: who belongs to them and how far they are."""

import builtins
from collections.abc import Iterable, Mapping, Sequence

from millstream.model.names import TopicPartition
from millstream.sdk.admin.group_results import CommittedOffset, GroupDescription, GroupListing
from millstream.sdk.arguments import as_names, as_places, by_place, check_group, offsets_by_place
from millstream.sdk.client_context import ClientContext
from millstream.sdk.sync.facade import EngineHandle, Portal
from millstream.sdk.time_arguments import Time


class Groups(EngineHandle):
    """The part of a client that looks after groups from outside; reached as `client.groups`."""

    def __init__(self, portal: Portal, context: ClientContext) -> None:
        super().__init__(portal, context, context.lifecycle)
        self._engine = context.cluster_queries.groups

    def list(
        self, *, states: Sequence[str] = (), kinds: Sequence[str] = (), timeout: Time = 30.0
    ) -> builtins.list[GroupListing]:
        """All groups of the cluster by name, or those in these states and of these kinds."""
        named, timeout_s = as_names("states", states), self._span_s(timeout)
        return self._do(self._engine.list(states=named, kinds=as_names("kinds", kinds), timeout_s=timeout_s))

    def describe(self, group_id: str, *, timeout: Time = 30.0) -> GroupDescription:
        """A group of either kind; GROUP_ID_NOT_FOUND when there is none of this name."""
        check_group(group_id)
        return self._do(self._engine.describe(group_id, timeout_s=self._span_s(timeout)))

    def offsets(
        self, group_id: str, places: Iterable[TopicPartition] | None = None, *, timeout: Time = 30.0
    ) -> dict[TopicPartition, CommittedOffset]:
        """What a group has committed, for these partitions or all; nothing where it has not, or where it is unknown."""
        check_group(group_id)
        chosen = None if places is None else as_places("places", places)
        return self._do(self._engine.offsets(group_id, chosen, timeout_s=self._span_s(timeout)))

    def commit(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset | int], *, timeout: Time = 30.0
    ) -> None:
        """Set where a group goes on; makes the group where it is unknown.

        That is for groups whose members are away: UNKNOWN_MEMBER_ID otherwise.
        """
        check_group(group_id)
        rows = {
            where: chosen if isinstance(chosen, CommittedOffset) else CommittedOffset(chosen)
            for where, chosen in by_place("offsets", offsets).items()
        }
        offsets_by_place("offsets", {where: row.offset for where, row in rows.items()})
        self._do(self._engine.commit(group_id, rows, timeout_s=self._span_s(timeout)))

    def delete_offsets(self, group_id: str, places: Sequence[TopicPartition], *, timeout: Time = 30.0) -> None:
        """Forget where a group was in these partitions; GROUP_SUBSCRIBED_TO_TOPIC while its members read them."""
        check_group(group_id)
        timeout_s = self._span_s(timeout)
        self._do(self._engine.delete_offsets(group_id, as_places("places", places), timeout_s=timeout_s))

    def delete(self, group_id: str, *, timeout: Time = 30.0) -> None:
        """Delete a group with its offsets; NON_EMPTY_GROUP while it has members, GROUP_ID_NOT_FOUND if unknown."""
        check_group(group_id)
        self._do(self._engine.delete(group_id, timeout_s=self._span_s(timeout)))
