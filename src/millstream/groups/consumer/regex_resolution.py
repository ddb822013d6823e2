"""Finds the topics that match the regular expressions of a group's members."""

from millstream.coordination.effects import Now
from millstream.groups.consumer.records import ResolvedRegex
from millstream.groups.consumer.state import GroupState
from millstream.groups.effects import GroupEffects
from millstream.groups.machine_context import MachineContext
from millstream.groups.timers import Timer, TimerKind

RESOLVE_AGAIN_MS = 1
"""Pause before the next step of a long search for topics, in which other work runs."""


class RegexResolution:
    """The expressions in use by one group, and the version of the topics for which each was resolved."""

    __slots__ = ("_context", "_resolved_at", "_state", "is_unfinished")

    def __init__(self, state: GroupState, context: MachineContext) -> None:
        self.is_unfinished = False
        """True if a long search must continue."""
        self._state = state
        self._context = context
        self._resolved_at: dict[str, int] = {}

    def resolve(self, now: Now, effects: GroupEffects) -> bool:
        """Resolves the regular expressions in use, and drops unused ones. Returns True if an expression matches other
        topics than before.

        A long search continues in the next call, for which this method sets a timer.
        """
        state, version = self._state, self._context.topics.version
        for expression in [each for each in state.regexes if each not in state.regex_users]:
            effects.records.append(state.drop_regex(expression))
        self._resolved_at = {each: at for each, at in self._resolved_at.items() if each in state.regex_users}
        has_changed = self.is_unfinished = False
        for expression in sorted(state.regex_users):
            if self._resolved_at.get(expression) == version:
                continue
            topics = self._context.regexes.matching(expression)
            if topics is None:
                self.is_unfinished = True
                break
            self._resolved_at[expression] = version
            known = state.regexes.get(expression)
            if known is None or known.topics != topics:
                resolved = ResolvedRegex(topics, version, now.wall_ms)
                effects.records.append(state.write_regex(expression, resolved))
                has_changed |= bool(topics) or known is not None
        if self.is_unfinished:
            self._context.deadlines.set(Timer(TimerKind.REGEX, state.group_id), now.monotonic_ms + RESOLVE_AGAIN_MS)
        return has_changed
