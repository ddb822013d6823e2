"""Holds the state that all groups of one machine share."""

from millstream.coordination.timers import Timers
from millstream.groups.consumer.regex_subscriptions import Regexes
from millstream.groups.group import Group
from millstream.groups.group_configs import GroupConfigs
from millstream.groups.iterators.issued_iterators import IssuedIterators
from millstream.groups.member_memory import GroupSizes, MemberBudget
from millstream.groups.offsets.deleted_topics import DeletedTopics
from millstream.groups.offsets.offset_store import OffsetStore
from millstream.groups.timers import Timer, TimerKind
from millstream.groups.topic_image import TopicImage
from millstream.seams.entropy import Entropy

LOOK_EVERY_MS = 600_000
"""Maximum interval between two expiry checks of a group, and the time after which an empty group without offsets is
removed. Kafka uses the same interval."""


class MachineContext:
    """Shared state of the groups of one machine. A group that changes its protocol replaces its own entry in
    `groups`."""

    def __init__(
        self, configs: GroupConfigs, topics: TopicImage, entropy: Entropy, budget: MemberBudget | None = None
    ) -> None:
        """Without a `budget`, the memory of members is not limited."""
        self.settings = configs.broker
        self.configs = configs
        self.topics = topics
        self.entropy = entropy
        self.deadlines: Timers[Timer] = Timers()
        self.offsets = OffsetStore()
        self.gone = DeletedTopics(self.offsets)
        self.issued = IssuedIterators()
        self.groups: dict[str, Group] = {}
        self.sizes = GroupSizes()
        self._budget = budget
        self.regexes = Regexes(topics)

    def has_member_room(self, more_bytes: int, *, is_member: bool) -> bool:
        """True if the memory budget of the broker allows a group to grow by this many bytes (see `MemberBudget`)."""
        return self._budget is None or self._budget.has_room(more_bytes, is_member=is_member)

    def measure(self, group_id: str) -> None:
        """Measure a group after a step that may have changed or removed it."""
        group = self.groups.get(group_id)
        self.sizes.measured(group_id, 0 if group is None else group.member_bytes)

    def look_at(self, group_id: str, at_ms: int) -> None:
        """Schedules an expiry check of the group at `at_ms` (monotonic clock), unless an earlier one is scheduled.
        Groups with offsets always have this timer; a group that becomes empty must request it."""
        timer = Timer(TimerKind.EXPIRY, group_id)
        planned_ms = self.deadlines.at_ms(timer)
        if planned_ms is None or at_ms < planned_ms:
            self.deadlines.set(timer, at_ms)
