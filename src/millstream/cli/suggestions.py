"""For a name that is not there: which names come nearest to it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING

from millstream.model.errors import ErrorCode, MillstreamError

if TYPE_CHECKING:
    from millstream.cli.session import CommandSession

LOOK_UP_S = 5.0
_NAMES_MAX = 10_000
"""Among more names than this, comparing would take longer than anybody wants to wait for an error."""


@contextmanager
def topic_expected(session: "CommandSession", name: str) -> Iterator[None]:
    """Add to UNKNOWN_TOPIC_OR_PARTITION, where the topic itself is missing, the names that look like the one given."""
    try:
        yield
    except MillstreamError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        names = _names(session)
        if names is None or name in names:
            raise
        meant = did_you_mean(name, names)
        if not meant:
            raise
        raise MillstreamError(error.code, f"there is no topic {name!r}{meant}") from error


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """`; did you mean …?`, or nothing where no name is near."""
    nearest = nearest_names(name, names)
    return f"; did you mean {' or '.join(nearest)}?" if nearest else ""


def nearest_names(name: str, names: Sequence[str]) -> list[str]:
    """At most three of `names` that could have been meant."""
    folded = {each.casefold(): each for each in names}
    return [folded[each] for each in get_close_matches(name.casefold(), list(folded), n=3, cutoff=0.6)]


def _names(session: "CommandSession") -> list[str] | None:
    try:
        views = session.run(session.client.list_topics(timeout_s=LOOK_UP_S))
    except MillstreamError:
        return None
    return [view.name for view in views] if len(views) <= _NAMES_MAX else None
