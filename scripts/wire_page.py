"""Generates the tables of fields in docs/wire.md from the schemas of Millstream's own APIs.

    scripts/wire_page.py           write the tables
    scripts/wire_page.py --check   fail if the page is out of date

The script writes what is between `<!-- fields of Puts -->` and `<!-- end -->`; the rest of the page is written by hand.
An API that the page lacks is an error. A struct that several APIs share is described at its first use.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "wire.md"
SCHEMAS = ROOT / "src" / "millstream" / "wire" / "schemas"
OWN_KEYS_FROM = 1000

Schema = dict[str, Any]

_PLACE = re.compile(r"<!-- fields of (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def schemas() -> dict[str, tuple[Schema, Schema]]:
    """The request and response schema of each of Millstream's own APIs, by name."""
    found: dict[str, tuple[Schema, Schema]] = {}
    for path in sorted(SCHEMAS.glob("*Request.json")):
        request = _load(path)
        if request["apiKey"] >= OWN_KEYS_FROM:
            api = path.stem.removesuffix("Request")
            found[api] = request, _load(path.with_stem(f"{api}Response"))
    return found


def _load(path: Path) -> Schema:
    schema: Schema = json.loads(re.sub(r"^\s*//.*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE))
    return schema


def written(page: str) -> str:
    """The page with new tables. Raise KeyError for an unknown API, and LookupError for one that the page lacks."""
    calls = schemas()
    lacking = sorted(calls.keys() - set(_PLACE.findall(page)))
    if lacking:
        raise LookupError(f"{PAGE.name} has no markers for the fields of {', '.join(lacking)}")
    described: set[str] = set()

    def replace(found: re.Match[str]) -> str:
        request, response = calls[found[1]]
        shared = {
            each["name"]: each for each in [*request.get("commonStructs", ()), *response.get("commonStructs", ())]
        }
        tables = [_table("request", request["fields"]), _table("response", response["fields"])]
        tables += [_table(name, shared[name]["fields"]) for name in shared if name not in described]
        described.update(shared)
        return "\n".join([f"<!-- fields of {found[1]} -->", *tables, "<!-- end -->"])

    return _PLACE.sub(replace, page)


def _table(name: str, fields: list[Schema]) -> str:
    head = f"| {name} | type | meaning |\n|---|---|---|\n"
    return head + "".join(f"| `{path}` | {kind} | {about} |\n" for path, kind, about in _rows(fields, ""))


def _rows(fields: list[Schema], before: str) -> Iterator[tuple[str, str, str]]:
    for field in fields:
        kind = field["type"]
        is_array = kind.startswith("[]")
        path = f"{before}{field['name']}{'[]' if is_array else ''}"
        shown = "struct" if "fields" in field else kind.removeprefix("[]")
        null = "" if "nullableVersions" not in field else "; the array may be null" if is_array else " or null"
        default = field.get("default", "null")
        yield path, f"{shown}{null}", field["about"] + (f" Default: {default}." if default != "null" else "")
        yield from _rows(field.get("fields", []), f"{path}.")


def main() -> int:
    page = PAGE.read_text(encoding="utf-8")
    fresh = written(page)
    if "--check" in sys.argv[1:]:
        if fresh != page:
            print(f"{PAGE.relative_to(ROOT)} is out of date: run scripts/wire_page.py", file=sys.stderr)
        return int(fresh != page)
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
