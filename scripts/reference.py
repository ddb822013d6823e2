"""Generates docs/reference/ from the signatures and docstrings of the SDK's public classes.

    scripts/reference.py           write the pages
    scripts/reference.py --check   fail and name the pages that are out of date

Each module of src/millstream/sdk/sync has a page. Its classes are the blocking ones; the asynchronous classes have the
same methods. Further classes that the methods take or return are listed below, by page. The sources are parsed and not
imported, so that compiled modules can be read too.
"""

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "millstream"
CLASSES = SOURCE / "sdk" / "sync"
TARGET = ROOT / "docs" / "reference"
INNER = {"__init__.py", "facade.py", "portal.py", "reader.py", "reader_factory.py"}
BASES = {"ReaderFactory": "sdk/sync/reader_factory.py"}
"""Base classes whose methods are described with those of the derived class."""

BESIDES: dict[str, dict[str, Sequence[str]]] = {
    "admin": {
        "sdk/admin/admin_results.py": (),
        "sdk/admin/topic_sizes.py": ("TopicSize", "PartitionSize", "OffsetRange"),
    },
    "client": {
        "sdk/responses.py": ("ClusterView", "Broker", "TopicView", "PartitionView", "ListedOffset", "BrokerInfo"),
        "sdk/cluster_queries.py": ("DriftInfo",),
        "sdk/connection/clock_drift.py": ("ClockDrift",),
        "sdk/admin/service_map.py": ("ServiceMap", "Leader", "BackupMap", "Backup", "Follower"),
        "model/services.py": ("Service",),
        "model/broker_endpoint.py": ("BrokerEndpoint",),
        "sdk/connection/address.py": ("Address",),
        "sdk/metrics.py": ("Metrics",),
        "sdk/watching/read_result.py": ("ReadResult",),
    },
    "consumer": {
        "sdk/consuming/options.py": ("ConsumerOptions", "ConsumerBaseOptions"),
        "sdk/consuming/health.py": (),
        "sdk/consuming/message_batch.py": (),
        "sdk/consuming/decoding.py": ("UndecodableError",),
        "records/message.py": ("Message",),
        "model/names.py": ("TopicPartition",),
    },
    "groups": {
        "sdk/admin/group_results.py": ("GroupListing", "GroupDescription", "GroupMember", "CommittedOffset", "GroupLag")
    },
    "iterator_calls": {
        "sdk/iterating/requests.py": (
            "GroupIterator",
            "IteratorBatch",
            "IteratorCommit",
            "IteratorMembership",
            "ListedIterator",
        ),
    },
    "iterators": {"sdk/iterating/options.py": ("IteratorOptions",)},
    "producer": {
        "sdk/producing/chunk.py": ("Receipt", "PutResult"),
        "sdk/producing/bulk.py": ("Receipts", "PutResults"),
        "sdk/producing/encoding.py": ("UnencodableError",),
        "sdk/producing/failures.py": ("OutcomeUnknownError", "UnstoredError"),
        "sdk/connection/outage.py": ("ConnectionHealth",),
        "sdk/producing/options.py": ("ProducerOptions", "ProducerBaseOptions"),
    },
    "subscription": {"sdk/subscribing/options.py": ()},
}
"""The classes of other files that belong to each page; without names, all classes of the file."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module:
    """One source file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.constants = _constants(self.tree)

    def public(self, names: Sequence[str] = ()) -> Iterator[ast.ClassDef | Function]:
        """Yield the public functions and classes with these names, or all that have a docstring, in source order.

        Raise LookupError for a name that the file does not define.
        """
        missing = set(names) - {node.name for node in self.tree.body if isinstance(node, ast.ClassDef | Function)}
        if missing:
            raise LookupError(f"{self.path.relative_to(ROOT)} does not define {', '.join(sorted(missing))}")
        for node in self.tree.body:
            if not isinstance(node, ast.ClassDef | Function):
                continue
            if node.name in names or (not names and not node.name.startswith("_") and ast.get_docstring(node)):
                yield node


def _constants(tree: ast.Module) -> dict[str, str]:
    """The constants with a plain value that the module defines, or imports from Millstream."""
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("millstream."):
            path = SOURCE.joinpath(*(node.module or "").split(".")[1:]).with_suffix(".py")
            wanted = {name.name for name in node.names if name.name.isupper()}
            if wanted and path.exists():
                theirs = _constants(ast.parse(path.read_text(encoding="utf-8")))
                found |= {name: theirs[name] for name in wanted & theirs.keys()}
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                found[node.targets[0].id] = repr(eval(ast.unparse(node.value), {"__builtins__": {}}))
            except Exception:  # Not a plain value, so there is nothing to show.
                continue
    return found


def signature(node: Function, module: Module) -> str:
    """The signature as Python source; long ones have one parameter per line."""
    arguments = node.args
    needed = len(arguments.args) - len(arguments.defaults)
    defaults: list[ast.expr | None] = [*([None] * needed), *arguments.defaults]
    parts = [_parameter(each, default, module) for each, default in zip(arguments.args, defaults, strict=True)]
    if arguments.args and arguments.args[0].arg in ("self", "cls"):
        del parts[0]
    if arguments.vararg:
        parts.append("*" + _parameter(arguments.vararg, None, module))
    elif arguments.kwonlyargs:
        parts.append("*")
    parts += [
        _parameter(each, default, module)
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg:
        parts.append("**" + _parameter(arguments.kwarg, None, module))
    answer = f" -> {_type(node.returns)}" if node.returns else ""
    short = f"{node.name}({', '.join(parts)}){answer}"
    if len(short) <= 100:
        return short
    return f"{node.name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){answer}"


def _parameter(node: ast.arg, default: ast.expr | None, module: Module) -> str:
    text = f"{node.arg}: {_type(node.annotation)}" if node.annotation else node.arg
    if default is None:
        return text
    value = ast.unparse(default)
    return f"{text} = {module.constants.get(value, value)}"


def _type(node: ast.expr) -> str:
    return ast.unparse(node).strip("'\"") if isinstance(node, ast.Constant) else ast.unparse(node)


def function_lines(node: Function, module: Module, level: str) -> Iterator[str]:
    yield from (f"{level} `{node.name}`", "```python", signature(node, module), "```", _doc(node), "")


def class_lines(node: ast.ClassDef, module: Module) -> Iterator[str]:
    """Describe a class: its docstring, its fields and its methods."""
    yield from (f"## class `{node.name}`", _doc(node), "")
    fields = list(_fields(node))
    if fields:
        yield from (*fields, "")
    yield from member_lines(node, module)
    for base in (each.id for each in node.bases if isinstance(each, ast.Name) and each.id in BASES):
        theirs = Module(SOURCE / BASES[base])
        for found in theirs.public([base]):
            assert isinstance(found, ast.ClassDef)
            yield from member_lines(found, theirs)


def member_lines(node: ast.ClassDef, module: Module) -> Iterator[str]:
    """Describe the public methods and properties of a class."""
    for member in node.body:
        if isinstance(member, Function) and not member.name.startswith("_") and not _is_overload(member):
            if any(isinstance(each, ast.Name) and each.id == "property" for each in member.decorator_list):
                yield f"### `{member.name}: {_type(member.returns)}`" if member.returns else f"### `{member.name}`"
                yield from (_doc(member), "")
            else:
                yield from function_lines(member, module, "###")


def _is_overload(node: Function) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "overload" for each in node.decorator_list)


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """Yield the fields of the class and of its `__init__`, each with its docstring."""
    bodies = [node.body, *(each.body for each in node.body if isinstance(each, Function) and each.name == "__init__")]
    for body in bodies:
        for member, behind in zip(body, [*body[1:], None], strict=True):
            text = _text(behind)
            shown = _field(member, is_own=body is node.body, is_documented=bool(text))
            if shown and not shown.startswith("_"):
                yield f"- `{shown}`" + (f": {text}" if text else "")


def _field(node: ast.stmt, *, is_own: bool, is_documented: bool) -> str | None:
    """The field as its class writes it. Attributes that `__init__` sets count only with a docstring."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        default = f" = {ast.unparse(node.value)}" if node.value else ""
        return f"{node.target.id}: {_type(node.annotation)}{default}"
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and is_own:
        return ast.unparse(node)
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute) and is_documented:
        return node.targets[0].attr
    return None


def _text(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split())
    return ""


def _doc(node: ast.ClassDef | Function) -> str:
    """The docstring as Markdown; indented parts are code."""
    lines, is_code = [], False
    for line in (ast.get_docstring(node) or "").splitlines():
        if line.startswith("    ") and not is_code:
            lines.append("```python")
            is_code = True
        elif line and not line.startswith("    ") and is_code:
            while not lines[-1]:
                lines.pop()
            lines += ["```", ""]
            is_code = False
        lines.append(line.removeprefix("    ") if is_code else line)
    return "\n".join([*lines, "```"] if is_code else lines)


def page(path: Path) -> str:
    """Generate the page of one module."""
    module = Module(path)
    name = path.stem
    lines = [f"# {name.replace('_', ' ').capitalize()}", ast.get_docstring(module.tree) or "", ""]
    nodes = list(module.public())
    for node in nodes:
        if not isinstance(node, ast.ClassDef) and node.decorator_list:  # Decorated functions are the public ones.
            lines += function_lines(node, module, "##")
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            lines += class_lines(node, module)
    for other, names in BESIDES.get(name, {}).items():
        theirs = Module(SOURCE / other)
        for node in theirs.public(names):
            if isinstance(node, ast.ClassDef):
                lines += class_lines(node, theirs)
    return "\n".join(lines).rstrip() + "\n"


def errors() -> str:
    """Generate the table of errors."""
    tree = Module(SOURCE / "model" / "errors.py")
    table = next(node for node in tree.public(["ErrorCode"]) if isinstance(node, ast.ClassDef))
    lines = [
        "# Errors",
        "Every failure is a `millstream.MillstreamError`. Its `code` is a row of this table (`millstream.ErrorCode`),",
        "and its text names what failed and why. The SDK retries retriable errors (`error.retriable`) within",
        "its timeouts. Codes that applications handle alike have a common exception class, which `millstream` exports.",
        "",
        "| code | number | retriable | exception class | meaning |",
        "|---|---|---|---|---|",
    ]
    classes = _error_classes(tree)
    for member in table.body:
        if isinstance(member, ast.Assign) and isinstance(member.targets[0], ast.Name):
            number, retriable, meaning = ast.literal_eval(member.value)
            name = member.targets[0].id
            kind = classes.get(name, "MillstreamError")
            lines.append(f"| {name} | {number} | {'yes' if retriable else 'no'} | {kind} | {meaning} |")
    lines.append("")
    for node in tree.public(sorted({*classes.values()})):
        assert isinstance(node, ast.ClassDef)
        lines += class_lines(node, tree)
    return "\n".join(lines).rstrip() + "\n"


def _error_classes(module: Module) -> dict[str, str]:
    """The name of the exception class for each code that has one, from the table in `model/errors.py`."""
    for node in module.tree.body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "_CLASSES":
            assert isinstance(node.value, ast.Dict)
            pairs = zip(node.value.keys, node.value.values, strict=True)
            return {ast.unparse(key).removeprefix("ErrorCode."): ast.unparse(value) for key, value in pairs if key}
    raise LookupError("model/errors.py does not define _CLASSES")


def contents(names: Sequence[str]) -> str:
    """Generate the index page."""
    head = """# The SDK, class by class
Generated by `scripts/reference.py` from the sources; [the guide](../sdk.md) explains how the classes work together. The
classes here block. `millstream.connect_async` returns their asyncio counterparts, `AsyncClient` and so on. These have
the same methods, for `await`, `async with` and `async for`.

"""
    return head + "".join(f"- [{name.replace('_', ' ').capitalize()}]({name}.md)\n" for name in names)


def expected() -> dict[Path, str]:
    """The expected content of each page."""
    sources = [path for path in sorted(CLASSES.glob("*.py")) if path.name not in INNER]
    pages = {TARGET / f"{path.stem}.md": page(path) for path in sources} | {TARGET / "errors.md": errors()}
    return pages | {TARGET / "README.md": contents(sorted(path.stem for path in pages))}


def stale() -> list[Path]:
    """The pages that are missing, out of date or obsolete."""
    wanted = expected()
    changed = {path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text}
    return sorted(changed | (set(TARGET.glob("*.md")) - wanted.keys()))


def write() -> None:
    """Write all pages, and remove obsolete ones."""
    TARGET.mkdir(exist_ok=True)
    for path, text in expected().items():
        path.write_text(text, encoding="utf-8")
    for path in stale():
        path.unlink()


def main() -> int:
    if sys.argv[1:] == ["--check"]:
        found = stale()
        for path in found:
            print(f"{path.relative_to(ROOT)} is out of date: run scripts/reference.py", file=sys.stderr)
        return 1 if found else 0
    write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
