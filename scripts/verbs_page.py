"""Generates docs/verbs.md from the table of verbs in the tests.

scripts/verbs_page.py           write it
scripts/verbs_page.py --check   fail if the page is out of date
"""

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "verbs.md"

sys.path.insert(0, str(ROOT / "tests"))

from integration.verbs.beside import ELSEWHERE, LATER  # noqa: E402 - the tests are not installed
from integration.verbs.table import INTERFACES, VERBS, Missing, Verb  # noqa: E402

_TITLES = {"wire": "wire", "sdk": "SDK", "http": "web API", "grpc": "gRPC", "cli": "command line"}
_HEADINGS = {"T": "Topics", "W": "Writing", "R": "Reading and groups", "C": "Clusters", "P": "Tools"}
_HEAD = """\
# Operations on each interface

After this page you can find every operation (verb) of Millstream on each interface. A verb behaves the same on every
interface, and an error has the same code on all of them. The tests call each verb on every interface that has it and
compare the results. `scripts/verbs_page.py` generates this page from the tests' table.

- *row*: the number of the row in [spec-coverage.md](spec-coverage.md).
- *wire*: the name of the API. [wire.md](wire.md) describes Millstream's own APIs; the others are Kafka's.
- *SDK*: methods of the [client](sdk.md) (`client`, `client.admin`, `client.groups`) and of its objects. The blocking
  and the asyncio methods have the same names.
- *web API*: method and path, see [gateway.md](gateway.md). *gRPC*: service and method, see [grpc.md](grpc.md).
- *command line*: the words after `millstream`, see [command-line.md](command-line.md).
"""


def written() -> str:
    return "\n".join([_HEAD, *_sections(), _elsewhere(), "", _later(), ""])


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
            yield f"{number}. Not available: {reason}."
        if reasons:
            yield ""


def _cell(verb: Verb, interface: str, reasons: list[str]) -> str:
    """The verb's names, or the number of the reason why it is missing."""
    place = verb.at(interface)
    if isinstance(place, Missing):
        if place.reason not in reasons:
            reasons.append(place.reason)
        return f"– ({reasons.index(place.reason) + 1})"
    return "<br>".join(f"`{name}`" for name in verb.places(interface))


def _elsewhere() -> str:
    rows = "\n".join(f"- {what}: `{test}`" for what, test in ELSEWHERE.items())
    return f"## Tested elsewhere\nThe table does not contain the following. Other tests compare it:\n\n{rows}"


def _later() -> str:
    rows = ", ".join(f"{what} ({row})" for row, what in LATER.items())
    return f"## Planned\nNot available yet on any interface: {rows}."


def main() -> int:
    fresh = written()
    if "--check" in sys.argv[1:]:
        is_fresh = PAGE.exists() and PAGE.read_text(encoding="utf-8") == fresh
        if not is_fresh:
            print(f"{PAGE.relative_to(ROOT)} is out of date: run scripts/verbs_page.py", file=sys.stderr)
        return int(not is_fresh)
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
