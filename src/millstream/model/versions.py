"""Which versions of Millstream work together: a broker and a client up to two minor versions apart, either way."""

import re

WINDOW = 2
"""Minor versions that client and broker may be apart."""

_MINOR = re.compile(r"([0-9]{1,5})\.([0-9]{1,5})(?![0-9])")


def minor_version(text: str) -> tuple[int, int] | None:
    """(major, minor) of a version such as 1.5.2; None for what is none."""
    found = _MINOR.match(text)
    return (int(found[1]), int(found[2])) if found else None


def work_together(one: str, other: str) -> bool:
    """Whether these two versions are within the window; what is no version is within none."""
    first, second = minor_version(one), minor_version(other)
    return first is not None and second is not None and first[0] == second[0] and abs(first[1] - second[1]) <= WINDOW
