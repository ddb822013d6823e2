"""Names the effects of the groups' state machine: answers of type `Answer`, and notices to the servers of
partitions and to the log."""

from millstream.coordination.effects import Effects
from millstream.groups.events import GroupEvent
from millstream.groups.iterators.iterator import IteratorNotice
from millstream.groups.responses import Answer

GroupNotice = IteratorNotice | GroupEvent
GroupEffects = Effects[Answer, GroupNotice]
