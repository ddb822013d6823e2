"""Dispatches iterator commands to their handlers, and turns raised errors into answers."""

from millstream.coordination.effects import Now
from millstream.groups.commands import (
    CommitIterator,
    DeliverIterator,
    GetIterator,
    IteratorCommand,
    IteratorHeartbeat,
    IteratorJoin,
    IteratorLeave,
    ListIterators,
)
from millstream.groups.effects import GroupEffects
from millstream.groups.failures import failed
from millstream.groups.iterators import clients, issue
from millstream.groups.machine_context import MachineContext
from millstream.groups.responses import Answer
from millstream.model.errors import MillstreamError


def answer(context: MachineContext, command: IteratorCommand, now: Now, effects: GroupEffects) -> Answer:
    """Executes an iterator command. Changes before an error remain and are in the effects. For example, a request for a
    partition that the client does not own still counts as a heartbeat and may have started a rebalance."""
    try:
        match command:
            case IteratorJoin():
                return clients.join(context, command, now, effects)
            case IteratorHeartbeat():
                return clients.client_heartbeat(context, command, now, effects)
            case IteratorLeave():
                return clients.leave(context, command, now, effects)
            case GetIterator():
                return issue.get(context, command, now, effects)
            case CommitIterator():
                return issue.commit(context, command, now, effects)
            case DeliverIterator():
                return issue.deliver(context, command, now, effects)
            case ListIterators():
                return issue.listed(context, command, now)
    except MillstreamError as error:
        return failed(command, error.code, error.detail)
