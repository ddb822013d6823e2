"""Creates pipelines from templates: files of this package with placeholders for a name and a topic."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import check_topic_name

_FILES = Path(__file__).with_name("templates")
_NAME = "my_pipeline"
_TOPIC = "orders"
_STORAGE = "STORAGE"
_PLACES = re.compile("|".join((_NAME, _TOPIC, _STORAGE)))
_LEGAL = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,99}")
"""Names that are valid for files, queries, groups and topics."""


class Template(NamedTuple):
    """A template of `millstream pipeline init`; a directory if it has several files."""

    name: str
    purpose: str
    is_directory: bool = False


TEMPLATES = (
    Template("transform", "A stream from topic to topic, changed message by message (Python)."),
    Template("count", "A stream of counts: how many messages each key has, from topic to topic (Python)."),
    Template("parquet", "A stream from a topic to Parquet files, by day (Python)."),
    Template("report", "A report on a topic: tables on the screen, and rows into another topic (SQL)."),
    Template(
        "declarative", "A project of Spark Declarative Pipelines: topic to topic, topic to table.", is_directory=True
    ),
)


def template(name: str) -> Template:
    """Returns the template of this name. Raises INVALID_SETTING, with the existing names, for an unknown one."""
    for each in TEMPLATES:
        if each.name == name:
            return each
    known = ", ".join(each.name for each in TEMPLATES)
    raise MillstreamError(ErrorCode.INVALID_SETTING, f"unknown template {name!r} (accepted: {known})")


def make(chosen: Template, name: str, topic: str, directory: Path) -> list[Path]:
    """Writes the template's files to this directory under `name`; returns their paths, the one to run first.

    Raises INVALID_SETTING for an invalid name, and for the topic's own name, because a pipeline must not read what it
    writes. Raises DUPLICATE_RESOURCE if one of the files, or the project's directory, exists; then nothing is written.
    """
    _check_name(name, topic)
    check_topic_name(topic)
    root = directory / name if chosen.is_directory else directory
    texts = {root / path.replace(_NAME, name): text for path, text in _files(chosen)}
    taken = [path for path in ([root] if chosen.is_directory else texts) if path.exists()]
    if taken:
        raise MillstreamError(ErrorCode.DUPLICATE_RESOURCE, f"{taken[0]} already exists; nothing was written")
    values = {_NAME: name, _TOPIC: topic, _STORAGE: (root.resolve() / "storage").as_uri()}
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_PLACES.sub(lambda place: values[place[0]], text), encoding="utf-8")
    return [root, *texts] if chosen.is_directory else list(texts)


def _check_name(name: str, topic: str) -> None:
    problem = None
    if not _LEGAL.fullmatch(name):
        problem = "expected a name of 1 to 100 letters (a to z), digits, '_' and '-' that begins with a letter"
    elif name == topic:
        problem = "the topic that the pipeline reads has this name; choose another name for its output"
    if problem:
        raise MillstreamError(ErrorCode.INVALID_SETTING, f"{name!r}: {problem}")


def _files(chosen: Template) -> Iterator[tuple[str, str]]:
    root = _FILES / chosen.name
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.suffix in (".py", ".sql", ".yml"):
            yield str(path.relative_to(root)), path.read_text(encoding="utf-8")
