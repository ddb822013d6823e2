# Written by scripts/sync.py from aio/groups.py: change that, and run it again.
"""`client.groups` lists, describes and deletes groups, and changes their committed offsets."""

import builtins
from collections.abc import Iterable, Mapping, Sequence

from millstream.model.names import TopicPartition
from millstream.sdk.admin.group_lag import group_lag
from millstream.sdk.admin.group_results import CommittedOffset, GroupDescription, GroupLag, GroupListing
from millstream.sdk.arguments import as_names, as_places, by_place, check_group, offsets_by_place
from millstream.sdk.client_context import ClientContext
from millstream.sdk.sync.facade import EngineHandle, Portal
from millstream.sdk.time_arguments import Time


class Groups(EngineHandle):
    """Administers groups without being a member. Available as `client.groups`."""

    def __init__(self, portal: Portal, context: ClientContext) -> None:
        super().__init__(portal, context, context.lifecycle)
        self._queries = context.cluster_queries
        self._engine = self._queries.groups

    def list(
        self, *, states: Sequence[str] = (), kinds: Sequence[str] = (), timeout: Time = 30.0
    ) -> builtins.list[GroupListing]:
        """Return the groups of the cluster, sorted by name; optionally only these states and kinds."""
        named, timeout_s = as_names("states", states), self._span_s(timeout)
        return self._do(self._engine.list(states=named, kinds=as_names("kinds", kinds), timeout_s=timeout_s))

    def describe(self, group_id: str, *, timeout: Time = 30.0) -> GroupDescription:
        """Return state and members of a group of either kind; raises GROUP_ID_NOT_FOUND if it does not exist."""
        check_group(group_id)
        return self._do(self._engine.describe(group_id, timeout_s=self._span_s(timeout)))

    def lag(self, group_id: str, *, timeout: Time = 30.0) -> dict[TopicPartition, GroupLag]:
        """Return a group's lag in all partitions of the topics that it reads or has committed offsets of.

        A partition without a committed offset counts from its beginning. Raises GROUP_ID_NOT_FOUND if the group does
        not exist.
        """
        check_group(group_id)
        return self._do(group_lag(self._queries, group_id, self._span_s(timeout)))

    def offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, timeout: Time = 30.0
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group for these partitions, or for all.

        Partitions without a committed offset are left out. The result is empty for an unknown group.
        """
        check_group(group_id)
        chosen = None if partitions is None else as_places("partitions", partitions)
        return self._do(self._engine.offsets(group_id, chosen, timeout_s=self._span_s(timeout)))

    def commit(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset | int], *, timeout: Time = 30.0
    ) -> None:
        """Set the committed offsets of a group without active members. An unknown group is created.

        Raises NON_EMPTY_GROUP, which names them, while the group has active members.
        """
        check_group(group_id)
        rows = {
            where: chosen if isinstance(chosen, CommittedOffset) else CommittedOffset(chosen)
            for where, chosen in by_place("offsets", offsets).items()
        }
        offsets_by_place("offsets", {where: row.offset for where, row in rows.items()})
        self._do(self._engine.commit(group_id, rows, timeout_s=self._span_s(timeout)))

    def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition], *, timeout: Time = 30.0) -> None:
        """Delete committed offsets of a group; raises GROUP_SUBSCRIBED_TO_TOPIC while members read these topics."""
        check_group(group_id)
        timeout_s = self._span_s(timeout)
        self._do(self._engine.delete_offsets(group_id, as_places("partitions", partitions), timeout_s=timeout_s))

    def delete(self, group_id: str, *, timeout: Time = 30.0) -> None:
        """Delete a group with its committed offsets.

        Raises NON_EMPTY_GROUP while the group has members, and GROUP_ID_NOT_FOUND if it does not exist.
        """
        check_group(group_id)
        self._do(self._engine.delete(group_id, timeout_s=self._span_s(timeout)))
