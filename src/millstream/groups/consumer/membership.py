"""Changes the members of a group, whichever protocol they use: members join, change, reconcile and leave.

Every method that changes something appends the records of the change. The group owns the timers: a member that sends no
heartbeats or does not revoke its partitions in time is fenced when its timer fires.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from millstream.coordination.effects import Now, Token
from millstream.groups.consumer.assignment_interval import AssignmentInterval
from millstream.groups.consumer.assignors import NOTHING
from millstream.groups.consumer.member_watches import MemberWatches
from millstream.groups.consumer.members import (
    AWAY_EPOCH,
    NEW_SUBSCRIPTION,
    NO_HOLDING,
    MemberAssignment,
    MemberState,
    MemberSubscription,
)
from millstream.groups.consumer.reconcile import Owned, next_holding, without
from millstream.groups.consumer.records import GroupEpoch, TargetEpoch
from millstream.groups.consumer.regex_resolution import RegexResolution
from millstream.groups.consumer.state import GroupState
from millstream.groups.consumer.target_assignment import compute_targets
from millstream.groups.effects import GroupEffects
from millstream.groups.events import AWAY, CHANGED, JOINED, Departure, RebalanceReason, departed, joined, rebalanced
from millstream.groups.machine_context import LOOK_EVERY_MS, MachineContext
from millstream.groups.size_limits import TOLD_BYTES_MAX
from millstream.groups.timers import Timer, TimerKind
from millstream.model.errors import ErrorCode, MillstreamError

_MEMBER_TIMERS = (TimerKind.SESSION, TimerKind.REBALANCE, TimerKind.JOIN, TimerKind.SYNC)


class GroupMembership:
    """The members of one group, with their state and timers."""

    def __init__(self, state: GroupState, context: MachineContext) -> None:
        self.state = state
        self.context = context
        self.watches = MemberWatches()
        self.empty_since_ms: int | None = None
        """Wall-clock time since when the group has had no members; None if unknown or if it has members."""
        self._topics_seen: int | None = None
        self._regexes = RegexResolution(state, context)
        self._reason = RebalanceReason()
        self._interval = AssignmentInterval(context.settings.consumer_assignment_interval_ms)

    # Lookups and checks.

    def subscription(self, member_id: str) -> MemberSubscription:
        """Returns the subscription of a member. Raises UNKNOWN_MEMBER_ID."""
        subscription = self.state.subscriptions.get(member_id)
        if subscription is None:
            raise MillstreamError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.state.group_id}."
            )
        return subscription

    def holding(self, member_id: str) -> MemberAssignment:
        """Returns the current assignment of a member."""
        return self.state.holdings.get(member_id, NO_HOLDING)

    def check_room(self, member_id: str) -> None:
        """Raises GROUP_MAX_SIZE_REACHED if this member is new and the group is full."""
        members_max = self.context.settings.members_max
        if len(self.state.subscriptions) >= members_max and member_id not in self.state.subscriptions:
            raise MillstreamError(
                ErrorCode.GROUP_MAX_SIZE_REACHED, f"The group has reached its maximum of {members_max} members."
            )

    def check_told(self, member_id: str, subscription: MemberSubscription) -> None:
        """Raises GROUP_MAX_SIZE_REACHED if the data of all members would exceed the size of a group, or the memory of
        the broker. A member that sends no more than before is always accepted."""
        more = self.state.more_told(member_id, subscription)
        if more > 0 and self.state.told_bytes + more > TOLD_BYTES_MAX:
            raise MillstreamError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The metadata of the group's members would exceed {TOLD_BYTES_MAX} bytes.",
            )
        if not self.context.has_member_room(more, is_member=member_id in self.state.subscriptions):
            raise MillstreamError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                "The members of all groups on this broker use the memory that group_memory_bytes allows.",
            )

    def check_instance(self, member_id: str, instance_id: str | None) -> None:
        """Raises UNKNOWN_MEMBER_ID if no member has the instance id, FENCED_INSTANCE_ID if another member has it."""
        if instance_id is None:
            self.subscription(member_id)
            return
        holder = self.state.static_ids.get(instance_id)
        if holder is None:
            raise MillstreamError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if holder != member_id:
            raise MillstreamError(
                ErrorCode.FENCED_INSTANCE_ID, f"Member {holder} has taken over instance id {instance_id}."
            )

    # Joining and changing.

    def subscribe(self, member_id: str, subscription: MemberSubscription, now: Now, effects: GroupEffects) -> None:
        """Stores the subscription of a member, and adds the member if it is new. If the topics of the subscription are
        new or have changed, the group advances to the next epoch."""
        before = self.state.subscriptions.get(member_id)
        if before != subscription:
            effects.records.append(self.state.write_subscription(member_id, subscription))
        topics_before = NEW_SUBSCRIPTION if before is None else before
        reads_others = (subscription.topics, subscription.regex) != (topics_before.topics, topics_before.regex)
        if before is None:
            effects.notices.append(joined(self.state.group_id, member_id, subscription))
        if reads_others:
            self._reason.add(JOINED if before is None else CHANGED)
        self.empty_since_ms = None
        self.refresh(now, effects, reads_others or self.state.epoch == 0)

    def refresh(self, now: Now, effects: GroupEffects, has_changed: bool = False) -> None:
        """Advances the group to the next epoch if its subscriptions (`has_changed`) or the subscribed topics have
        changed.

        Costs nothing if neither has changed. Called for every heartbeat, because a heartbeat is the first chance to
        inform a member.
        """
        version = self.context.topics.version
        if not (has_changed or self._regexes.is_unfinished or self._topics_seen != version):
            return
        has_changed |= self._regexes.resolve(now, effects)
        metadata_hash = self.state.hash_of_topics(self.context.topics)
        if has_changed or metadata_hash != self.state.metadata_hash:
            effects.records.append(self.state.write_group(GroupEpoch(self.state.epoch + 1, metadata_hash)))
            self._reason.add("topics changed")
        self._topics_seen = version

    def assign(self, now: Now, effects: GroupEffects) -> None:
        """Computes the target assignment if the group epoch has changed since the last one.

        If the last computation was very recent, a timer triggers the next one. So many members that join together cost
        only one computation.
        """
        state = self.state
        if state.epoch == state.target_epoch or not state.subscriptions:
            return
        left_ms = self._interval.left_ms(now.monotonic_ms)
        if left_ms:
            self.begin_timer(TimerKind.ASSIGN, "", left_ms, now)
            return
        targets = compute_targets(state, self.context.topics)
        watches_before = len(self.watches)
        for member_id, target in targets.items():
            if state.targets.get(member_id) != target:
                effects.records.append(state.write_target(member_id, target))
                self.watches.answer(member_id, effects)
        effects.records.append(state.write_target_epoch(TargetEpoch(state.epoch, now.wall_ms)))
        reason, members = self._reason.take(), len(state.subscriptions)
        effects.notices.append(rebalanced(state.group_id, epoch=state.epoch, members=members, reason=reason))
        self.context.issued.moved_on(state.group_id, state.epoch, effects)
        heartbeats = watches_before - len(self.watches)
        self._interval.assigned(targets.values(), now.monotonic_ms, heartbeats=heartbeats)

    def reconcile(self, member_id: str, owned: Owned | None, now: Now, effects: GroupEffects) -> MemberAssignment:
        """Advances the member by one step. Returns its assignment after the step."""
        state = self.state
        before = self.holding(member_id)
        after = self._next_holding(member_id, owned)
        if after is before:
            return before
        effects.records.append(state.write_holding(member_id, after))
        self.watches.released(before.held, after.held, effects)
        subscription = state.subscriptions[member_id]
        if after.state is MemberState.UNREVOKED and subscription.classic is None:
            self.set_timer(TimerKind.REBALANCE, member_id, subscription.rebalance_timeout_ms, now)
        else:
            self.cancel(TimerKind.REBALANCE, member_id)
        return after

    def _next_holding(self, member_id: str, owned: Owned | None) -> MemberAssignment:
        state = self.state
        return next_holding(
            self.holding(member_id),
            state.target_epoch,
            state.targets.get(member_id, NOTHING),
            owned,
            lambda topic_id, partition: state.is_free(topic_id, partition, member_id),
        )

    # Watches.

    def watch(self, member_id: str, token: Token, now: Now, effects: GroupEffects) -> None:
        """Answers the token when a heartbeat of the member would change the member's partitions. If a heartbeat would
        change them now, the answer is immediate. Raises UNKNOWN_MEMBER_ID.

        While a member watches, the group computes a due assignment without waiting for a heartbeat.
        """
        self.subscription(member_id)
        target, holding = self.state.targets.get(member_id, NOTHING), self.holding(member_id)
        self.watches.open(member_id, token, without(target, holding.held), effects)
        self.assign(now, effects)
        if self._next_holding(member_id, None).assigned != holding.assigned:
            self.watches.answer(member_id, effects)

    def replace(self, old_id: str, new_id: str, effects: GroupEffects) -> None:
        """Moves everything of a returning static member to its new id. Its epoch is 0 until it has reconciled."""
        state = self.state
        subscription, target, holding = state.subscriptions[old_id], state.targets.get(old_id), self.holding(old_id)
        effects.records += state.drop_member(old_id)
        self._cancel_timers_of(old_id)
        self.watches.answer(old_id, effects)
        effects.records.append(state.write_subscription(new_id, subscription))
        effects.notices.append(joined(state.group_id, new_id, subscription))
        if target is not None:
            effects.records.append(state.write_target(new_id, target))
        effects.records.append(state.write_holding(new_id, replace(holding, epoch=0, previous_epoch=0)))

    # Leaving.

    def step_out(self, member_id: str, effects: GroupEffects) -> None:
        """Marks a static member as temporarily away. Partitions that it had to revoke are free now; the others stay
        reserved."""
        effects.notices.append(departed(self.state.group_id, member_id, self.state.subscriptions[member_id], AWAY))
        before = self.holding(member_id)
        away = replace(before, epoch=AWAY_EPOCH, state=MemberState.STABLE, revoking=NOTHING)
        effects.records.append(self.state.write_holding(member_id, away))
        self.cancel(TimerKind.REBALANCE, member_id)
        self.watches.answer(member_id, effects)
        self.watches.released(before.held, away.held, effects)

    def drop(self, member_ids: Iterable[str], why: Departure, now: Now, effects: GroupEffects) -> None:
        """Removes members. The caller decides what follows for the others."""
        group_id = self.state.group_id
        self._reason.add(why.event)
        for member_id in member_ids:
            effects.notices.append(departed(group_id, member_id, self.state.subscriptions[member_id], why))
            self.context.issued.abandon(group_id, member_id, now, effects)
            held = self.holding(member_id).held
            effects.records += self.state.drop_member(member_id)
            self._cancel_timers_of(member_id)
            self.watches.answer(member_id, effects)
            self.watches.released(held, NOTHING, effects)

    def share_out_anew(self, now: Now, effects: GroupEffects) -> None:
        """Advances the epoch after members have left. If a member watches, the new assignment is computed now, or when
        the assignment interval is over. Otherwise the next heartbeat of a member computes it."""
        self.refresh(now, effects, has_changed=True)
        if self.watches:
            self.assign(now, effects)
        if not self.state.subscriptions:
            self._reason.take()
            self.empty_since_ms = now.wall_ms
            self.context.look_at(self.state.group_id, now.monotonic_ms + LOOK_EVERY_MS)

    # Timers and loading.

    def heard_of(self, member_id: str, now: Now) -> None:
        """Restarts the session timeout of a member."""
        classic = self.state.subscriptions[member_id].classic
        if classic:
            timeout_ms = classic.session_timeout_ms
        else:
            timeout_ms = self.context.configs.session_timeout_ms(self.state.group_id)
        self.set_timer(TimerKind.SESSION, member_id, timeout_ms, now)

    def loaded(self, now: Now) -> None:
        """Starts a full session timeout for every member, and a full rebalance timeout for those that must revoke
        partitions."""
        for member_id, subscription in self.state.subscriptions.items():
            self.heard_of(member_id, now)
            if self.holding(member_id).state is MemberState.UNREVOKED and subscription.classic is None:
                self.set_timer(TimerKind.REBALANCE, member_id, subscription.rebalance_timeout_ms, now)

    def set_timer(self, kind: TimerKind, member_id: str, timeout_ms: int, now: Now) -> None:
        self.context.deadlines.set(Timer(kind, self.state.group_id, member_id), now.monotonic_ms + timeout_ms)

    def begin_timer(self, kind: TimerKind, member_id: str, timeout_ms: int, now: Now) -> None:
        """Sets a timer, unless it is already set."""
        if self.context.deadlines.at_ms(Timer(kind, self.state.group_id, member_id)) is None:
            self.set_timer(kind, member_id, timeout_ms, now)

    def cancel(self, kind: TimerKind, member_id: str) -> None:
        self.context.deadlines.cancel(Timer(kind, self.state.group_id, member_id))

    def close(self, effects: GroupEffects) -> None:
        """Cancels all timers and answers all watches, because the group is removed or changes its protocol."""
        self.watches.answer_all(effects)
        for member_id in self.state.subscriptions:
            self._cancel_timers_of(member_id)
        self.cancel(TimerKind.REGEX, "")
        self.cancel(TimerKind.ASSIGN, "")

    def _cancel_timers_of(self, member_id: str) -> None:
        for kind in _MEMBER_TIMERS:
            self.cancel(kind, member_id)
