"""Stores, removes and reads the committed offsets of groups, for commits of consumers and of iterator clients."""

from millstream.coordination.effects import LogRecord, Now
from millstream.groups.effects import GroupEffects
from millstream.groups.machine_context import LOOK_EVERY_MS, MachineContext
from millstream.groups.records import NO_TOPIC, OffsetKey, offset_record, offset_tombstone
from millstream.groups.responses import CommittedOffset


def store(context: MachineContext, key: OffsetKey, committed: CommittedOffset, effects: GroupEffects) -> None:
    """Stores a committed offset and appends its record.

    If offsets of a deleted topic with the same name are not removed yet, those of this group are removed first. So
    offsets of the old and the new topic never mix.
    """
    for gone in context.gone.take_of(key.group_id, key.topic):
        forget(context, gone, effects)
    context.offsets.put(key, committed)
    effects.records.append(record_of(context, key, committed))


def record_of(context: MachineContext, key: OffsetKey, committed: CommittedOffset) -> LogRecord:
    """Returns the record of a committed offset. It contains the id of the topic that has the name now, so that a later
    replay can detect whether the topic was recreated."""
    topic = context.topics.get(key.topic)
    return offset_record(key, committed, NO_TOPIC if topic is None else topic.topic_id)


def stored(context: MachineContext, group_id: str, now: Now) -> None:
    """Schedules the expiry check of a group that has stored an offset."""
    context.look_at(group_id, now.monotonic_ms + LOOK_EVERY_MS)


def forget(context: MachineContext, key: OffsetKey, effects: GroupEffects) -> None:
    if context.offsets.remove(key):
        effects.records.append(offset_tombstone(key))


def committed(context: MachineContext, key: OffsetKey) -> CommittedOffset | None:
    """Returns the committed offset of a group; None if there is none or the topic was deleted."""
    if key.group_id not in context.groups or context.gone.has(key.group_id, key.topic):
        return None
    return context.offsets.get(key)
