"""Computes the target assignment of a group from its state and the current topics."""

from collections import Counter
from collections.abc import Iterable

from millstream.groups.consumer.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, NOTHING, Assignment, Subscriber
from millstream.groups.consumer.members import MemberSubscription
from millstream.groups.consumer.state import GroupState
from millstream.groups.topic_image import TopicImage
from millstream.model.ids import TopicIdBytes


def preferred_assignor(subscriptions: Iterable[MemberSubscription]) -> str:
    """Returns the assignor that most members request.

    In a tie, the first assignor by name wins. If no member requests an assignor, the result is the default assignor.
    """
    votes = Counter(each.assignor for each in subscriptions if each.assignor is not None)
    return min(votes, key=lambda name: (-votes[name], name), default=DEFAULT_ASSIGNOR)


def compute_targets(state: GroupState, topics: TopicImage) -> dict[str, Assignment]:
    """Returns the target of every member, by member id."""
    partitions: dict[TopicIdBytes, int] = {}
    ids_of: dict[tuple[tuple[str, ...], str], frozenset[TopicIdBytes]] = {}
    subscribers: dict[str, Subscriber] = {}
    for member_id, subscription in state.subscriptions.items():
        alike = (subscription.topics, subscription.regex)
        topic_ids = ids_of.get(alike)
        if topic_ids is None:
            found = [topics.get(name) for name in state.topics_of(subscription)]
            counts = {topic.topic_id: topic.partitions for topic in found if topic is not None}
            partitions |= counts
            topic_ids = ids_of[alike] = frozenset(counts)
        before = state.targets.get(member_id, NOTHING)
        subscribers[member_id] = Subscriber(topic_ids, before, subscription.instance_id)
    return ASSIGNORS[preferred_assignor(state.subscriptions.values())](subscribers, partitions)
