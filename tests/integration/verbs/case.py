"""Defines a case: one call of a verb and its expected outcome, the same on every interface that has the verb."""

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
    """One call of a verb.

    `given` prepares the call and returns its arguments. `gives` returns the expected result and `after` checks the
    state afterwards. A failing case has the error code in `fails` and the blamed field in `field`, which only some
    interfaces report. `says` is a part of its text, and `title` the title of its HTTP problem document. `seen` extracts
    from the answer what `gives` returns. `but` lists interfaces that cannot make this call, with the reason.
    """

    verb: str
    name: str
    given: Given
    gives: Callable[[World, Arguments], Any] | None = None
    after: Callable[[World, Arguments], bool] | None = None
    fails: ErrorCode | None = None
    field: str | None = None
    says: str = ""
    title: str = ""
    seen: Callable[[Any, Arguments], Any] = lambda found, _: found
    but: Mapping[str, str] = dataclasses.field(default_factory=dict)
    only_for_us: tuple[str, ...] = ()
    """Arguments that the verb does not take, but that `gives` and `after` use."""

    @property
    def id(self) -> str:
        return f"{self.verb}: {self.name}"


UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
BAD_NAME = "no name at all"
FLAG = "an invalid flag is a usage error, reported before a request is sent"

RECORDS = "a record batch always has a value for each record, which may be null, and may have no key"

NUMBERS = "Kafka's protocol has numbers for positions, durations and sizes, and no defaults for positions"


def no_topic(world: World) -> Arguments:
    return {"topic": world.unused()}


def no_group(world: World) -> Arguments:
    return {"group": world.unused()}
