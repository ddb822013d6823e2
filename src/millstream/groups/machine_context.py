"""What all groups of one machine share."""

from millstream.groups.consumer.regex_subscriptions import Regexes
from millstream.groups.group import Group
from millstream.groups.iterators.issued_iterators import IssuedIterators
from millstream.groups.offsets import OffsetStore
from millstream.groups.runtime.deleted_topics import DeletedTopics
from millstream.groups.settings import GroupSettings
from millstream.groups.timers import Timer, TimerKind, Timers
from millstream.groups.topic_image import TopicImage
from millstream.seams.entropy import Entropy

LOOK_EVERY_MS = 600_000
"""How long at most until a group is looked at again for what has expired, and how long an empty one without offsets is
kept, as Kafka does."""


class MachineContext:
    """A group that turns into one of the other kind puts the other one into `groups` in its own place."""

    def __init__(self, settings: GroupSettings, topics: TopicImage, entropy: Entropy) -> None:
        self.settings = settings
        self.topics = topics
        self.entropy = entropy
        self.deadlines = Timers()
        self.offsets = OffsetStore()
        self.gone = DeletedTopics(self.offsets)
        self.issued = IssuedIterators()
        self.groups: dict[str, Group] = {}
        self.regexes = Regexes(topics)

    def look_at(self, group_id: str, at_ms: int) -> None:
        """See by then at the latest (monotonic clock) what of the group has expired. Groups that have an offset always
        have this timer; one that becomes empty must ask for it."""
        timer = Timer(TimerKind.EXPIRY, group_id)
        planned_ms = self.deadlines.at_ms(timer)
        if planned_ms is None or at_ms < planned_ms:
            self.deadlines.set(timer, at_ms)
