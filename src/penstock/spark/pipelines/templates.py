"""Pipelines to begin from: files of this package in which a name and a topic are put in."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.names import check_topic_name

_FILES = Path(__file__).with_name("templates")
_NAME = "my_pipeline"
_TOPIC = "orders"
_STORAGE = "STORAGE"


class Template(NamedTuple):
    """What `penstock pipeline init` can make; a directory, if it has several files."""

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
    """INVALID_SETTING, with those there are, where there is none of this name."""
    for each in TEMPLATES:
        if each.name == name:
            return each
    known = ", ".join(each.name for each in TEMPLATES)
    raise PenstockError(ErrorCode.INVALID_SETTING, f"there is no template {name!r}; there are {known}")


def make(chosen: Template, name: str, topic: str, directory: Path) -> list[Path]:
    """Write the template's files, as `name` in this directory; their paths, the one to run first.

    INVALID_SETTING for names that cannot be, and DUPLICATE_RESOURCE where one of the files, or the project's directory,
    is there already; then nothing is written.
    """
    if not name.replace("-", "_").isidentifier():
        raise PenstockError(ErrorCode.INVALID_SETTING, f"{name!r}: expected a name of letters, digits, '_' and '-'")
    check_topic_name(topic)
    root = directory / name if chosen.is_directory else directory
    texts = {root / path.replace(_NAME, name): text for path, text in _files(chosen)}
    taken = [path for path in ([root] if chosen.is_directory else texts) if path.exists()]
    if taken:
        raise PenstockError(ErrorCode.DUPLICATE_RESOURCE, f"{taken[0]} exists already; nothing was written")
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        text = text.replace(_TOPIC, topic).replace(_NAME, name)
        path.write_text(text.replace(_STORAGE, (root.resolve() / "storage").as_uri()), encoding="utf-8")
    return [root, *texts] if chosen.is_directory else list(texts)


def _files(chosen: Template) -> Iterator[tuple[str, str]]:
    root = _FILES / chosen.name
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.suffix in (".py", ".sql", ".yml"):
            yield str(path.relative_to(root)), path.read_text(encoding="utf-8")
