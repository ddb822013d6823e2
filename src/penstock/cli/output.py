"""What commands print: tables for people, JSON for programs."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any


def print_json(document: Any) -> None:
    """One JSON document, on one line."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")


def print_line(text: str) -> None:
    sys.stdout.write(text + "\n")


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
    """A table; the columns named in `numbers` are flush right. Into a pipe it is as wide as it needs to be."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    Console(width=None if sys.stdout.isatty() else 10_000, highlight=False, markup=False).print(table)


def text_or_base64(name: str, data: bytes | None) -> dict[str, str | None]:
    """`{name: text}`, or `{name_base64: …}` for bytes that are not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        from base64 import b64encode

        return {f"{name}_base64": b64encode(data).decode()}


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
    return "-" if data is None else data.decode(errors="backslashreplace")
