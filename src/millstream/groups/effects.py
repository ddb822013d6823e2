"""Names the effects of the groups' state machine: answers of type `Answer`, and notices to the servers of
partitions."""

from millstream.coordination.effects import Effects
from millstream.groups.iterators.iterator import IteratorNotice
from millstream.groups.responses import Answer

GroupEffects = Effects[Answer, IteratorNotice]
