"""What commands print: tables and lines for people, JSON for programs.

What people read has no control characters in it, whoever wrote the text: a terminal would obey them. Only the values
that `get` and `tail` hand on, and JSON, are as they are.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from unicodedata import category

if TYPE_CHECKING:
    from millstream.records.record import Record

CELL_MAX = 300
"""So many characters of a text are shown in a table; a topic's name fits in."""


def printable(text: str) -> str:
    """The text with an escape, such as `\\x1b`, for each character that a terminal might obey or not show."""
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character.isprintable() or category(character) == "Zs":  # Spaces of all widths are what they seem.
        return character
    return character.encode("unicode_escape").decode()


def shortened(text: str) -> str:
    """The text, or its beginning with an ellipsis where it is longer than people read in a line."""
    return text if len(text) <= CELL_MAX else text[: CELL_MAX - 1] + "…"


def print_json(document: Any) -> None:
    """One JSON document, on one line."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")


def print_line(text: str = "") -> None:
    sys.stdout.write(printable(text) + "\n")


def print_note(text: str) -> None:
    """A line on standard error, behind what was printed before."""
    if sys.stdout is not None:
        sys.stdout.flush()
    sys.stderr.write(printable(text) + "\n")


def print_bytes(data: bytes) -> None:
    """All of these bytes, now, behind what was printed as text before.

    Where Python was told not to buffer, one write may take only a part of them.
    """
    sys.stdout.flush()
    rest = memoryview(data)
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Sequence[str] = ()) -> None:
    """A table; the columns named in `numbers` are flush right. Into a pipe it is as wide as it needs to be.

    No cell is taken for markup, and one of more than CELL_MAX characters ends in an ellipsis.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(_cell(column), justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(_cell, row))
    Console(width=None if sys.stdout.isatty() else 10_000, highlight=False, markup=False, emoji=False).print(table)


def _cell(value: object) -> str:
    return shortened(printable(str(value)))


def text_or_base64(name: str, data: bytes | None) -> dict[str, str | None]:
    """`{name: text}`, or `{name_base64: …}` for bytes that are not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        from base64 import b64encode

        return {f"{name}_base64": b64encode(data).decode()}


def record_document(topic: str, partition: int, record: "Record") -> dict[str, Any]:
    """A message as programs get it, and as `put --json-lines` takes it."""
    return {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **text_or_base64("key", record.key),
        **text_or_base64("value", record.value),
        "headers": [{"name": name, **text_or_base64("value", value)} for name, value in record.headers],
    }


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 message`, `2 messages`."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def shown_size(size_bytes: int) -> str:
    """`512 B`, `1.5 MiB`: three digits are as many as people read."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def shown(data: bytes | None) -> str:
    """Bytes for a person's eye: text where it is text, escapes where it is not."""
    return "-" if data is None else printable(data.decode(errors="backslashreplace"))
