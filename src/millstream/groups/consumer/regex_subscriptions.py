"""Resolves subscriptions by regular expression in the broker.

Expressions use RE2's syntax, as in Kafka, and RE2 itself (package `google-re2`) matches them. Its time is linear in the
length of a name. It has no backreferences and no look-around, and rejects other expressions. An expression must match
the whole name.

Linear time can still be long: many long names and a large expression could block the event loop for seconds. So the
work of one call is limited. It is counted in characters times instructions of the compiled expression, which is an
upper bound for the work of RE2. The next call continues an unfinished search. Results are cached until a topic changes.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from millstream.groups.topic_image import TopicImage
from millstream.model.errors import ErrorCode, MillstreamError

EXPRESSION_CHARS_MAX = 4_096
INSTRUCTIONS_MAX = 10_000
WORK_MAX = 10_000_000
"""Limit of characters times instructions in one call; takes about ten milliseconds at worst."""

KEPT = 256
"""Number of expressions whose result is cached. All groups that use an expression share its result."""


def compile_expression(expression: str) -> Any:
    """Compiles the expression to an RE2 object for bytes.

    Raises INVALID_REGULAR_EXPRESSION, with RE2's reason, if the expression cannot be used.
    """
    import re2  # Loaded on first use, because most brokers never get a regular expression.

    if len(expression) > EXPRESSION_CHARS_MAX:
        raise _invalid(expression, f"it has {len(expression)} characters, at most {EXPRESSION_CHARS_MAX} are allowed")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        compiled = re2.compile(expression.encode(), options)
    except re2.error as error:
        raise _invalid(expression, error.args[0].decode(errors="replace")) from None
    if compiled.programsize > INSTRUCTIONS_MAX:
        raise _invalid(expression, "its compiled form is too large; use fewer repetitions or several subscriptions")
    return compiled


def _invalid(expression: str, reason: str) -> MillstreamError:
    shown = expression if len(expression) <= 100 else f"{expression[:100]}…"
    return MillstreamError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{shown}` is not a valid regular expression: {reason}.",
    )


class Regexes:
    """The topics that match expressions. A caller repeats `matching` until it returns a result."""

    def __init__(self, topics: TopicImage) -> None:
        self._topics = topics
        self._cache: OrderedDict[str, _Search] = OrderedDict()

    def check(self, expression: str) -> None:
        """Raises INVALID_REGULAR_EXPRESSION if the expression cannot be used."""
        self._search(expression)

    def matching(self, expression: str) -> tuple[str, ...] | None:
        """Returns the names that match, sorted; None while the search is incomplete.

        An invalid expression matches nothing. Only a log that other software wrote can contain one.
        """
        try:
            search = self._search(expression)
        except MillstreamError:
            return ()
        search.go_on(self._topics)
        return tuple(search.found) if search.is_done else None

    def _search(self, expression: str) -> "_Search":
        search = self._cache.get(expression)
        if search is None:
            search = self._cache[expression] = _Search(expression)
            if len(self._cache) > KEPT:
                self._cache.popitem(last=False)
        self._cache.move_to_end(expression)
        return search


class _Search:
    def __init__(self, expression: str) -> None:
        self._compiled = compile_expression(expression)
        self._version: int | None = None
        self._remaining: Iterator[str] = iter(())
        self.found: list[str] = []
        self.is_done = False

    def go_on(self, topics: TopicImage) -> None:
        if self._version != topics.version:
            self._version = topics.version
            self._remaining = iter(tuple(topics.names()))
            self.found = []
            self.is_done = False
        if self.is_done:
            return
        fullmatch, instructions = self._compiled.fullmatch, self._compiled.programsize
        work = WORK_MAX
        for name in self._remaining:
            if fullmatch(name.encode()):
                self.found.append(name)
            work -= (len(name) + 1) * instructions
            if work <= 0:
                return
        self.is_done = True
