"""How what a group has committed is stored, told and forgotten, whoever asks for it."""

from millstream.groups.effects import Effects, GroupLogRecord, Now
from millstream.groups.machine_context import LOOK_EVERY_MS, MachineContext
from millstream.groups.records import NO_TOPIC, OffsetKey, offset_record, offset_tombstone
from millstream.groups.responses import CommittedOffset


def store(context: MachineContext, key: OffsetKey, committed: CommittedOffset, effects: Effects) -> None:
    """What is left of a topic that had the same name is forgotten first: the two do not mix."""
    for gone in context.gone.take_of(key.group_id, key.topic):
        forget(context, gone, effects)
    context.offsets.put(key, committed)
    effects.records.append(record_of(context, key, committed))


def record_of(context: MachineContext, key: OffsetKey, committed: CommittedOffset) -> GroupLogRecord:
    """With the topic that has the name now: whoever reads it later knows whether it is the same."""
    topic = context.topics.get(key.topic)
    return offset_record(key, committed, NO_TOPIC if topic is None else topic.topic_id)


def stored(context: MachineContext, group_id: str, now: Now) -> None:
    """Something was stored for the group: see to it that it is looked at for what expires."""
    context.look_at(group_id, now.monotonic_ms + LOOK_EVERY_MS)


def forget(context: MachineContext, key: OffsetKey, effects: Effects) -> None:
    if context.offsets.remove(key):
        effects.records.append(offset_tombstone(key))


def committed(context: MachineContext, key: OffsetKey) -> CommittedOffset | None:
    """What a group has committed; None when it has not, or in a topic that is gone."""
    if key.group_id not in context.groups or context.gone.has(key.group_id, key.topic):
        return None
    return context.offsets.get(key)
