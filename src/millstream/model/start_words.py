"""Defines the words for start positions, and the default start position of each kind of reader.

The SDK, the command line, the web API, gRPC and Spark use this table, so a word means the same on every interface.
"""

from collections.abc import Collection

BEGINNING = "beginning"
"""The oldest available message of a partition."""

LATEST = "latest"
"""The log end at the time of the lookup."""

_WORDS = {BEGINNING: BEGINNING, "earliest": BEGINNING, LATEST: LATEST, "end": LATEST}

START_WORDS: Collection[str] = tuple(_WORDS)
"""All accepted words. `earliest` is a synonym of `beginning`, and `end` of `latest`."""

ACCEPTED_WORDS = "beginning, earliest, latest or end"
"""The accepted words, for error messages."""

READ_START = BEGINNING
"""The default start position of a read that returns the stored messages and then ends."""

FOLLOW_START = LATEST
"""The default start position of a reader that waits for new messages and has no group."""

GROUP_START = BEGINNING
"""The default start position of a group in a partition without a committed offset."""


def start_word(text: str) -> str | None:
    """Return BEGINNING or LATEST for a word in upper or lower case; None for other text."""
    return _WORDS.get(text.strip().lower())


def follow_start(group: str | None) -> str:
    """Return the default start position of a reader that waits for new messages. `group` is None if it has no group."""
    return FOLLOW_START if group is None else GROUP_START
