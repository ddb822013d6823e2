"""Subscriptions by regular expression, resolved by the broker.

Expressions are RE2's, as in Kafka, matched by RE2 itself (the package `google-re2`): time is linear in the length of a
name, there are no backreferences and no look-around, and what RE2 refuses is refused here. An expression has to match
the whole name.

Linear is not yet cheap: many long names times a large expression would hold the event loop for seconds. So the work of
one call is bounded, counted in characters times instructions of the compiled expression, which is an upper bound of
what RE2 does. What is not finished goes on at the next call. Results are kept as long as the topics stay the same.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from millstream.groups.topic_image import TopicImage
from millstream.model.errors import ErrorCode, MillstreamError

EXPRESSION_CHARS_MAX = 4_096
INSTRUCTIONS_MAX = 10_000
WORK_MAX = 10_000_000
"""Characters times instructions of one call: some ten milliseconds at worst."""

KEPT = 256
"""Expressions whose result is kept; there is one result for all groups that use it."""


def compile_expression(expression: str) -> Any:
    """The expression made ready, as RE2's own object for bytes.

    Raises INVALID_REGULAR_EXPRESSION, with RE2's reason, for one that cannot be used.
    """
    import re2  # Most brokers never meet an expression: they need not load its library.

    if len(expression) > EXPRESSION_CHARS_MAX:
        raise _invalid(expression, f"it has {len(expression)} characters, {EXPRESSION_CHARS_MAX} are allowed")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        compiled = re2.compile(expression.encode(), options)
    except re2.error as error:
        raise _invalid(expression, error.args[0].decode(errors="replace")) from None
    if compiled.programsize > INSTRUCTIONS_MAX:
        raise _invalid(expression, "it is too large; use fewer repetitions or several subscriptions")
    return compiled


def _invalid(expression: str, reason: str) -> MillstreamError:
    shown = expression if len(expression) <= 100 else f"{expression[:100]}…"
    return MillstreamError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{shown}` is not a valid regular expression: {reason}.",
    )


class Regexes:
    """What expressions stand for. `matching` may have to be called again until it has an answer."""

    def __init__(self, topics: TopicImage) -> None:
        self._topics = topics
        self._kept: OrderedDict[str, _Search] = OrderedDict()

    def check(self, expression: str) -> None:
        """Raises INVALID_REGULAR_EXPRESSION."""
        self._search(expression)

    def matching(self, expression: str) -> tuple[str, ...] | None:
        """The names that match, sorted; None as long as there is more to look through. An expression that cannot be
        used, which only somebody else can have written into the log, matches nothing."""
        try:
            search = self._search(expression)
        except MillstreamError:
            return ()
        search.go_on(self._topics)
        return tuple(search.found) if search.is_done else None

    def _search(self, expression: str) -> "_Search":
        search = self._kept.get(expression)
        if search is None:
            search = self._kept[expression] = _Search(expression)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(expression)
        return search


class _Search:
    def __init__(self, expression: str) -> None:
        self._compiled = compile_expression(expression)
        self._version: int | None = None
        self._left: Iterator[str] = iter(())
        self.found: list[str] = []
        self.is_done = False

    def go_on(self, topics: TopicImage) -> None:
        if self._version != topics.version:
            self._version = topics.version
            self._left = iter(tuple(topics.names()))
            self.found = []
            self.is_done = False
        if self.is_done:
            return
        fullmatch, instructions = self._compiled.fullmatch, self._compiled.programsize
        work = WORK_MAX
        for name in self._left:
            if fullmatch(name.encode()):
                self.found.append(name)
            work -= (len(name) + 1) * instructions
            if work <= 0:
                return
        self.is_done = True
