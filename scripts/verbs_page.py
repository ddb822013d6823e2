"""Write docs/verbs.md from the table of verbs that the tests walk.

scripts/verbs_page.py           write it
scripts/verbs_page.py --check   fail when it is not what this would write
"""

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "verbs.md"

sys.path.insert(0, str(ROOT / "tests"))

from integration.verbs.beside import LATER  # noqa: E402 - it lies with the tests, which are not installed
from integration.verbs.table import INTERFACES, VERBS, Missing, Verb  # noqa: E402

_TITLES = {"wire": "wire", "sdk": "SDK", "http": "web API", "grpc": "gRPC", "cli": "command line"}
_HEADINGS = {"T": "Topics", "W": "Writing", "R": "Reading and groups", "C": "Clusters", "P": "Tools"}
_HEAD = """\
# What can be asked, and how on each interface

The same verb does the same on every interface, and a failure has the same name on all of them: each row is called by
the tests wherever it is, and what comes back is compared. The row's number is that of
[what is done](spec-coverage.md). This page is written by `scripts/verbs_page.py` from the table that the tests walk.

- *wire*: the API's name; [wire.md](wire.md) has Millstream's own, the others are Kafka's.
- *SDK*: methods of the [client](sdk.md) (`client`, `client.admin`, `client.groups`) and of what it makes; those that
  block and those that are awaited have the same names.
- *web API*: method and path, see [gateway.md](gateway.md); *gRPC*: service and method, see [grpc.md](grpc.md).
- *command line*: what follows `millstream`, see [command-line.md](command-line.md).
"""


def written() -> str:
    return "\n".join([_HEAD, *_sections(), _later(), ""])


def _sections() -> Iterator[str]:
    for letter, heading in _HEADINGS.items():
        verbs = [verb for verb in VERBS if verb.row.startswith(letter)]
        yield f"## {heading}\n"
        yield "| verb | row | " + " | ".join(_TITLES[each] for each in INTERFACES) + " |"
        yield "|---" * (len(INTERFACES) + 2) + "|"
        reasons: list[str] = []
        for verb in verbs:
            cells = [_cell(verb, each, reasons) for each in INTERFACES]
            yield f"| {verb.does} | {verb.row} | " + " | ".join(cells) + " |"
        yield ""
        for number, reason in enumerate(reasons, 1):
            yield f"{number}. Not there: {reason}."
        if reasons:
            yield ""


def _cell(verb: Verb, interface: str, reasons: list[str]) -> str:
    """The names, or the number of the reason why there are none."""
    place = verb.at(interface)
    if isinstance(place, Missing):
        if place.reason not in reasons:
            reasons.append(place.reason)
        return f"– ({reasons.index(place.reason) + 1})"
    return "<br>".join(f"`{name}`" for name in verb.places(interface))


def _later() -> str:
    rows = ", ".join(f"{what} ({row})" for row, what in LATER.items())
    return f"## Not yet\nNowhere so far: {rows}."


def main() -> int:
    fresh = written()
    if "--check" in sys.argv[1:]:
        is_fresh = PAGE.exists() and PAGE.read_text(encoding="utf-8") == fresh
        if not is_fresh:
            print(f"{PAGE.relative_to(ROOT)} is not fresh: run scripts/verbs_page.py", file=sys.stderr)
        return int(not is_fresh)
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
