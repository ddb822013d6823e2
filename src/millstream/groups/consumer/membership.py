"""What happens to the members of a group, whichever protocol they speak: they come, change, step on, and go.

Every method that changes something appends the records that say so. The timers are the group's: a member that is
silent, or does not give back what it has to, is fenced when its timer comes.
"""

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from millstream.groups.consumer.assignors import NOTHING, Assignment, partition_count
from millstream.groups.consumer.members import (
    AWAY_EPOCH,
    NEW_SUBSCRIPTION,
    NO_HOLDING,
    MemberAssignment,
    MemberState,
    MemberSubscription,
)
from millstream.groups.consumer.reconcile import Owned, next_holding
from millstream.groups.consumer.records import GroupEpoch, ResolvedRegex, TargetEpoch
from millstream.groups.consumer.state import GroupState
from millstream.groups.consumer.target_assignment import compute_targets
from millstream.groups.effects import Effects, Now
from millstream.groups.machine_context import LOOK_EVERY_MS, MachineContext
from millstream.groups.size_limits import TOLD_BYTES_MAX
from millstream.groups.timers import Timer, TimerKind
from millstream.model.errors import ErrorCode, MillstreamError

RESOLVE_AGAIN_MS = 1
"""How soon the next step of a long search for topics follows; others get their turn in between."""

ASSIGN_US = 10
"""What sharing out takes at most, roughly, for each member and for each partition."""

ASSIGN_ONE_IN = 10
"""Of the time, at most so much goes into sharing out what one group reads."""

_MEMBER_TIMERS = (TimerKind.SESSION, TimerKind.REBALANCE, TimerKind.JOIN, TimerKind.SYNC)


class GroupMembership:
    def __init__(self, state: GroupState, context: MachineContext) -> None:
        self.state = state
        self.context = context
        self.empty_since_ms: int | None = None
        """Since when (wall clock) nobody has been here, if that is known."""
        self._topics_seen: int | None = None
        self._resolved_at: dict[str, int] = {}
        self._is_resolving = False
        self._assign_from_ms = 0

    # Who is meant.

    def subscription(self, member_id: str) -> MemberSubscription:
        """Raises UNKNOWN_MEMBER_ID."""
        subscription = self.state.subscriptions.get(member_id)
        if subscription is None:
            raise MillstreamError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.state.group_id}."
            )
        return subscription

    def holding(self, member_id: str) -> MemberAssignment:
        return self.state.holdings.get(member_id, NO_HOLDING)

    def check_room(self, member_id: str) -> None:
        """Raises GROUP_MAX_SIZE_REACHED for one more member than there may be."""
        members_max = self.context.settings.members_max
        if len(self.state.subscriptions) >= members_max and member_id not in self.state.subscriptions:
            raise MillstreamError(
                ErrorCode.GROUP_MAX_SIZE_REACHED, f"The group has reached its maximum of {members_max} members."
            )

    def check_told(self, member_id: str, subscription: MemberSubscription) -> None:
        """Raises GROUP_MAX_SIZE_REACHED if all members together would tell more of themselves than a group can hold;
        who tells no more than before may."""
        more = self.state.more_told(member_id, subscription)
        if more > 0 and self.state.told_bytes + more > TOLD_BYTES_MAX:
            raise MillstreamError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"What the members tell of themselves would take more than {TOLD_BYTES_MAX} bytes.",
            )

    def check_instance(self, member_id: str, instance_id: str | None) -> None:
        """Raises UNKNOWN_MEMBER_ID if nobody has the static id, FENCED_INSTANCE_ID if somebody else has it."""
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

    # Coming and changing.

    def subscribe(self, member_id: str, subscription: MemberSubscription, now: Now, effects: Effects) -> None:
        """Let this be what the member says of itself; a new one is a member from now on. If it reads other topics than
        before, or these have changed, the partitions are shared out anew."""
        before = self.state.subscriptions.get(member_id)
        if before != subscription:
            effects.records.append(self.state.write_subscription(member_id, subscription))
        topics_before = NEW_SUBSCRIPTION if before is None else before
        reads_others = (subscription.topics, subscription.regex) != (topics_before.topics, topics_before.regex)
        self.empty_since_ms = None
        self.refresh(now, effects, reads_others or self.state.epoch == 0)

    def refresh(self, now: Now, effects: Effects, has_changed: bool = False) -> None:
        """Go on to the next epoch if members read other topics (`has_changed`) or the topics are no longer the same.

        Costs nothing if neither is so. Done with every heartbeat, the first occasion to tell a member."""
        version = self.context.topics.version
        if not (has_changed or self._is_resolving or self._topics_seen != version):
            return
        has_changed |= self._resolve(now, effects)
        metadata_hash = self.state.hash_of_topics(self.context.topics)
        if has_changed or metadata_hash != self.state.metadata_hash:
            effects.records.append(self.state.write_group(GroupEpoch(self.state.epoch + 1, metadata_hash)))
        self._topics_seen = version

    def _resolve(self, now: Now, effects: Effects) -> bool:
        """Look up what the expressions in use stand for, and drop the others; whether one stands for something new.

        A long search goes on with the next call, for which it sets a timer."""
        state, version = self.state, self.context.topics.version
        for expression in [each for each in state.regexes if each not in state.regex_users]:
            effects.records.append(state.drop_regex(expression))
        self._resolved_at = {each: at for each, at in self._resolved_at.items() if each in state.regex_users}
        has_changed = self._is_resolving = False
        for expression in sorted(state.regex_users):
            if self._resolved_at.get(expression) == version:
                continue
            topics = self.context.regexes.matching(expression)
            if topics is None:
                self._is_resolving = True
                break
            self._resolved_at[expression] = version
            known = state.regexes.get(expression)
            if known is None or known.topics != topics:
                resolved = ResolvedRegex(topics, version, now.wall_ms)
                effects.records.append(state.write_regex(expression, resolved))
                has_changed |= bool(topics) or known is not None
        if self._is_resolving:
            self.context.deadlines.set(Timer(TimerKind.REGEX, state.group_id), now.monotonic_ms + RESOLVE_AGAIN_MS)
        return has_changed

    def assign(self, now: Now, effects: Effects) -> None:
        """Share out the partitions, if the group is at another epoch than when that was last done.

        Where that was done a moment ago it is left to a timer: so members that come together cost no more than one."""
        state = self.state
        if state.epoch == state.target_epoch or not state.subscriptions:
            return
        if now.monotonic_ms < self._assign_from_ms:
            self.begin_timer(TimerKind.ASSIGN, "", self._assign_from_ms - now.monotonic_ms, now)
            return
        targets = compute_targets(state, self.context.topics)
        for member_id, target in targets.items():
            if state.targets.get(member_id) != target:
                effects.records.append(state.write_target(member_id, target))
        effects.records.append(state.write_target_epoch(TargetEpoch(state.epoch, now.wall_ms)))
        self.context.issued.moved_on(state.group_id, state.epoch, effects)
        self._assign_from_ms = now.monotonic_ms + self._pause_ms(targets.values())

    def _pause_ms(self, targets: Collection[Assignment]) -> int:
        """Until these may be replaced: as long as the operator says, and longer for a very large group; not at all if
        nobody was given anything, as nobody is who only comes to ask for iterators later."""
        interval_ms = self.context.settings.consumer_assignment_interval_ms if any(targets) else 0
        work_us = ASSIGN_US * (len(targets) + sum(map(partition_count, targets)))
        return max(interval_ms, ASSIGN_ONE_IN * work_us // 1000) if interval_ms else 0

    def reconcile(self, member_id: str, owned: Owned | None, now: Now, effects: Effects) -> MemberAssignment:
        """Let the member take its next step, and give what it then has."""
        state = self.state
        before = self.holding(member_id)
        after = next_holding(
            before,
            state.target_epoch,
            state.targets.get(member_id, NOTHING),
            owned,
            lambda topic_id, partition: state.is_free(topic_id, partition, member_id),
        )
        if after is before:
            return before
        effects.records.append(state.write_holding(member_id, after))
        subscription = state.subscriptions[member_id]
        if after.state is MemberState.UNREVOKED and subscription.classic is None:
            self.set_timer(TimerKind.REBALANCE, member_id, subscription.rebalance_timeout_ms, now)
        else:
            self.cancel(TimerKind.REBALANCE, member_id)
        return after

    def replace(self, old_id: str, new_id: str, effects: Effects) -> None:
        """A static member is back: the new id gets everything that the old one had, at epoch 0 until it has stepped."""
        state = self.state
        subscription, target, holding = state.subscriptions[old_id], state.targets.get(old_id), self.holding(old_id)
        effects.records += state.drop_member(old_id)
        self._cancel_timers_of(old_id)
        effects.records.append(state.write_subscription(new_id, subscription))
        if target is not None:
            effects.records.append(state.write_target(new_id, target))
        effects.records.append(state.write_holding(new_id, replace(holding, epoch=0, previous_epoch=0)))

    # Going.

    def step_out(self, member_id: str, effects: Effects) -> None:
        """A static member leaves for a while. What it was to give back, it has no longer; the rest waits for it."""
        away = replace(self.holding(member_id), epoch=AWAY_EPOCH, state=MemberState.STABLE, revoking=NOTHING)
        effects.records.append(self.state.write_holding(member_id, away))
        self.cancel(TimerKind.REBALANCE, member_id)

    def drop(self, member_ids: Iterable[str], now: Now, effects: Effects) -> None:
        """They are no longer members; the caller sees to what that means for the others."""
        for member_id in member_ids:
            self.context.issued.abandon(self.state.group_id, member_id, now, effects)
            effects.records += self.state.drop_member(member_id)
            self._cancel_timers_of(member_id)

    def share_out_anew(self, now: Now, effects: Effects) -> None:
        """Members are gone. The partitions are shared out when the next one is heard of."""
        self.refresh(now, effects, has_changed=True)
        if not self.state.subscriptions:
            self.empty_since_ms = now.wall_ms
            self.context.look_at(self.state.group_id, now.monotonic_ms + LOOK_EVERY_MS)

    # Time.

    def heard_of(self, member_id: str, now: Now) -> None:
        """The member is alive."""
        classic = self.state.subscriptions[member_id].classic
        settings = self.context.settings
        timeout_ms = classic.session_timeout_ms if classic else settings.consumer_session_timeout_ms
        self.set_timer(TimerKind.SESSION, member_id, timeout_ms, now)

    def loaded(self, now: Now) -> None:
        """Everybody gets a whole session to be heard of, and the whole time to give back."""
        for member_id, subscription in self.state.subscriptions.items():
            self.heard_of(member_id, now)
            if self.holding(member_id).state is MemberState.UNREVOKED and subscription.classic is None:
                self.set_timer(TimerKind.REBALANCE, member_id, subscription.rebalance_timeout_ms, now)

    def set_timer(self, kind: TimerKind, member_id: str, timeout_ms: int, now: Now) -> None:
        self.context.deadlines.set(Timer(kind, self.state.group_id, member_id), now.monotonic_ms + timeout_ms)

    def begin_timer(self, kind: TimerKind, member_id: str, timeout_ms: int, now: Now) -> None:
        """Unless it runs already."""
        if self.context.deadlines.at_ms(Timer(kind, self.state.group_id, member_id)) is None:
            self.set_timer(kind, member_id, timeout_ms, now)

    def cancel(self, kind: TimerKind, member_id: str) -> None:
        self.context.deadlines.cancel(Timer(kind, self.state.group_id, member_id))

    def cancel_all(self) -> None:
        """The group goes, or becomes one of the other kind."""
        for member_id in self.state.subscriptions:
            self._cancel_timers_of(member_id)
        self.cancel(TimerKind.REGEX, "")
        self.cancel(TimerKind.ASSIGN, "")

    def _cancel_timers_of(self, member_id: str) -> None:
        for kind in _MEMBER_TIMERS:
            self.cancel(kind, member_id)
