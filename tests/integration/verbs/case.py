"""One call of a verb: with what, and what must come of it, the same on every interface that has it."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from integration.verbs.world import World
from millstream.model.errors import ErrorCode

Arguments = dict[str, Any]
Given = Callable[[World], Arguments]


@dataclass(frozen=True)
class Case:
    """One call. `given` prepares it and says with what; `gives` is what must come back, `after` what must hold then;
    `fails` is the failure's name instead, and `field` what is to blame for it where an interface says so. `seen` takes
    from an answer what `gives` speaks of. Interfaces that cannot be asked just this are in `but`, with the reason.
    """

    verb: str
    name: str
    given: Given
    gives: Callable[[World, Arguments], Any] | None = None
    after: Callable[[World, Arguments], bool] | None = None
    fails: ErrorCode | None = None
    field: str | None = None
    seen: Callable[[Any, Arguments], Any] = lambda found, _: found
    but: Mapping[str, str] = dataclasses.field(default_factory=dict)
    only_for_us: tuple[str, ...] = ()
    """Arguments that the verb does not take, but what follows speaks of."""

    @property
    def id(self) -> str:
        return f"{self.verb}: {self.name}"


UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
BAD_NAME = "no name at all"
FLAG = "a flag that cannot be is a mistake in the line, told before anybody is asked"


def no_topic(world: World) -> Arguments:
    return {"topic": world.unused()}


def no_group(world: World) -> Arguments:
    return {"group": world.unused()}
