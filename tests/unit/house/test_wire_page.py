"""Checks that docs/wire.md describes each of Millstream's own APIs with all its fields, and no others."""

import re
from pathlib import Path

import wire_page
from builders.served import ServedBroker, serve
from millstream.model.errors import ErrorCode

PAGE = wire_page.PAGE.read_text(encoding="utf-8")
HEADINGS = re.compile(r"^### (\w+) \((\d+), version (\d+)(?:–(\d+))?(?:, (producer|consumer)s)?\)$", flags=re.MULTILINE)


def test_the_field_tables_of_the_wire_page_are_up_to_date() -> None:
    assert wire_page.written(PAGE) == PAGE


def test_every_served_api_is_documented_with_key_versions_and_role(tmp_path: Path) -> None:
    served = set()

    async def story(broker: ServedBroker) -> None:
        for row in broker.table.rows.values():
            if row.key >= wire_page.OWN_KEYS_FROM:
                served.add((row.api, row.key, row.first, row.last, row.role.name.lower() if row.role else ""))

    serve(tmp_path, story)
    said = {
        (api, int(key), int(first), int(last or first), role) for api, key, first, last, role in HEADINGS.findall(PAGE)
    }
    assert said == served
    assert {api for api, *_ in served} == set(wire_page.schemas())


def test_every_field_of_every_api_is_documented() -> None:
    for api, schemas in wire_page.schemas().items():
        section = PAGE.partition(f"<!-- fields of {api} -->")[2].partition("<!-- end -->")[0]
        for schema in schemas:
            for name in re.findall(r"'name': '(\w+)', 'type'", str(schema["fields"])):
                assert re.search(rf"[`.]{name}(\[\])?`", section), f"{api}: {name}"


def test_documented_errors_have_the_numbers_of_the_table() -> None:
    named = re.findall(r"`([A-Z_]{4,})`,? \(?(-?\d+)", PAGE)
    assert len(named) > 20
    for name, number in named:
        assert ErrorCode[name].number == int(number)
