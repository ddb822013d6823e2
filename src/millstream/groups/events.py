"""Describes the changes of a group that the runtime logs.

The machine returns them as notices, so a change is logged once its records are durable.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from msgspec import Struct


class GroupEvent(NamedTuple):
    """A line of the log: the event and its fields."""

    event: str
    fields: Mapping[str, object]


class Departure(Struct, frozen=True):
    """The event and the reason for which a member is no longer in its group."""

    event: str
    reason: str


JOINED = "member joined"
CHANGED = "member changed"
LEFT = Departure("member left", "leave request")
AWAY = Departure("member left", "static member away")
REPLACED = Departure("member left", "replaced by a classic member")
REFUSED = Departure("member removed", "group size limit")
SESSION_OVER = Departure("member expired", "session timeout")
NOT_REJOINED = Departure("member expired", "rebalance timeout")
NOT_SYNCED = Departure("member expired", "sync timeout")


class Member(Protocol):
    """The part of a member, of either protocol, that log lines name."""

    @property
    def instance_id(self) -> str | None: ...

    @property
    def client_id(self) -> str: ...

    @property
    def client_host(self) -> str: ...


def joined(group_id: str, member_id: str, member: Member) -> GroupEvent:
    return GroupEvent(JOINED, _fields(group_id, member_id, member))


def departed(group_id: str, member_id: str, member: Member, why: Departure) -> GroupEvent:
    return GroupEvent(why.event, {**_fields(group_id, member_id, member), "reason": why.reason})


def rebalanced(group_id: str, *, members: int, reason: str, **version: int) -> GroupEvent:
    """Describes a new generation (`generation=…`) or assignment epoch (`epoch=…`)."""
    return GroupEvent("group rebalanced", {"group": group_id, **version, "members": members, "reason": reason})


def _fields(group_id: str, member_id: str, member: Member) -> dict[str, object]:
    instance = {} if member.instance_id is None else {"instance": member.instance_id}
    client = {"peer": member.client_host.removeprefix("/"), "client_id": member.client_id}
    return {"group": group_id, "member": member_id, **instance, **client}


class RebalanceReason:
    """The first reason for the next rebalance, until that rebalance takes it."""

    __slots__ = ("_first",)

    def __init__(self) -> None:
        self._first = ""

    def add(self, reason: str) -> None:
        self._first = self._first or reason

    def take(self) -> str:
        """Returns the reason and forgets it."""
        first, self._first = self._first, ""
        return first
