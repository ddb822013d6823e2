"""Decides which versions work together: client and broker may be up to two minor versions apart."""

import re

WINDOW = 2
"""The maximum difference between the minor versions of client and broker."""

_MINOR = re.compile(r"([0-9]{1,5})\.([0-9]{1,5})(?![0-9])")


def minor_version(text: str) -> tuple[int, int] | None:
    """Return (major, minor) of a version such as 1.5.2, or None if the text is not a version."""
    found = _MINOR.match(text)
    return (int(found[1]), int(found[2])) if found else None


def work_together(one: str, other: str) -> bool:
    """Return True if these two versions are within the window. A text that is not a version never is."""
    first, second = minor_version(one), minor_version(other)
    return first is not None and second is not None and first[0] == second[0] and abs(first[1] - second[1]) <= WINDOW
