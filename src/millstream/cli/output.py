"""Prints the output of commands: tables and lines for people, JSON for programs.

Text for people never contains control characters, because a terminal would interpret them. Only JSON, and the message
values that `get` and `tail` write to a file or a pipe, are printed unchanged.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from unicodedata import category

if TYPE_CHECKING:
    from millstream.records.record import Record

CELL_MAX = 300
"""Maximum number of characters in a table cell. The name of any topic fits."""


def printable(text: str) -> str:
    """Escapes each character that a terminal might interpret or not show, for example as `\\x1b`."""
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character.isprintable() or category(character) == "Zs":  # Spaces of any width are harmless.
        return character
    return character.encode("unicode_escape").decode()


def lines_for_terminal(data: bytes) -> str:
    """Returns bytes as text for a terminal: line ends and tabs stay, all other control characters are escaped."""
    text = data.decode(errors="backslashreplace")
    if text.isprintable():
        return text
    return "".join(each if each in "\n\t" else _visible(each) for each in text)


def shortened(text: str) -> str:
    """Returns the text, shortened with an ellipsis if it is longer than CELL_MAX characters."""
    return text if len(text) <= CELL_MAX else text[: CELL_MAX - 1] + "…"


def print_json(document: Any) -> None:
    """Prints a JSON document on one line."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")


def print_line(text: str = "") -> None:
    sys.stdout.write(printable(text) + "\n")


def print_note(text: str) -> None:
    """Prints a line on standard error, after flushing standard output."""
    if sys.stdout is not None:
        sys.stdout.flush()
    sys.stderr.write(printable(text) + "\n")


def print_bytes(data: bytes) -> None:
    """Writes bytes to standard output and flushes it. Text printed before comes first.

    If Python runs unbuffered, a single write may accept only a part of the bytes, so it is repeated.
    """
    sys.stdout.flush()
    rest = memoryview(data)
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Sequence[str] = ()) -> None:
    """Prints a table. The columns named in `numbers` are right-aligned. In a pipe, the width is not limited.

    Cells are not interpreted as markup. A cell of more than CELL_MAX characters ends in an ellipsis.
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
    """Returns `{name: text}`, or `{name_base64: …}` for bytes that are not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        from base64 import b64encode

        return {f"{name}_base64": b64encode(data).decode()}


def record_document(topic: str, partition: int, record: "Record") -> dict[str, Any]:
    """Returns a message in the JSON format that `get --json` prints and `put --json-lines` accepts."""
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
    """Formats a count with its noun: `1 message`, `2 messages`."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def shown_size(size_bytes: int) -> str:
    """Formats a size with up to three digits: `512 B`, `1.5 MiB`."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def shown(data: bytes | None) -> str:
    """Formats bytes as printable text, with escapes for the rest. None becomes `-`."""
    return "-" if data is None else printable(data.decode(errors="backslashreplace"))
