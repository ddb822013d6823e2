"""Suggests similar names when a name does not exist."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING

from millstream.model.errors import ErrorCode, MillstreamError

if TYPE_CHECKING:
    from millstream.cli.session import CommandSession

LOOK_UP_S = 5.0
_NAMES_MAX = 10_000
"""With more topics than this, no names are suggested: comparing them would delay the error message."""


@contextmanager
def topic_expected(session: "CommandSession", name: str) -> Iterator[None]:
    """Adds similar topic names to UNKNOWN_TOPIC_OR_PARTITION if the topic itself does not exist."""
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
        raise MillstreamError(error.code, f"topic {name!r} does not exist{meant}") from error


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """Returns `; did you mean …?`, or an empty text if no name is similar."""
    nearest = nearest_names(name, names)
    return f"; did you mean {' or '.join(nearest)}?" if nearest else ""


def nearest_names(name: str, names: Sequence[str]) -> list[str]:
    """Returns the names most similar to `name`, at most three."""
    folded = {each.casefold(): each for each in names}
    return [folded[each] for each in get_close_matches(name.casefold(), list(folded), n=3, cutoff=0.6)]


def _names(session: "CommandSession") -> list[str] | None:
    try:
        views = session.run(session.client.list_topics(timeout_s=LOOK_UP_S))
    except MillstreamError:
        return None
    return [view.name for view in views] if len(views) <= _NAMES_MAX else None
