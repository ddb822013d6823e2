"""Write docs/reference/ from the signatures and docstrings of the SDK's public classes.

    scripts/reference.py           write it
    scripts/reference.py --check   fail, naming the pages, when they are not what this would write

Each module of src/millstream/sdk/sync has a page: the classes that block, whose asynchronous twins have the same
methods. What the classes give and take besides is listed below, by page. Sources are read and not imported, so that
what is compiled can be read too.
"""

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "millstream"
CLASSES = SOURCE / "sdk" / "sync"
TARGET = ROOT / "docs" / "reference"
INNER = {"__init__.py", "facade.py", "portal.py", "reader.py"}

BESIDES: dict[str, dict[str, Sequence[str]]] = {
    "admin": {"sdk/admin/admin_results.py": ()},
    "client": {
        "sdk/responses.py": ("ClusterView", "Broker", "TopicView", "PartitionView", "ListedOffset", "BrokerInfo"),
        "sdk/cluster_queries.py": ("DriftInfo",),
        "sdk/connection/clock_drift.py": ("ClockDrift",),
        "sdk/metrics.py": ("Metrics",),
        "sdk/watching/read_result.py": ("ReadResult",),
    },
    "consumer": {
        "sdk/consuming/options.py": ("ConsumerOptions",),
        "sdk/consuming/health.py": (),
        "sdk/consuming/message_batch.py": (),
        "sdk/consuming/decoding.py": ("UndecodableError",),
        "records/message.py": ("Message",),
        "model/names.py": ("TopicPartition",),
    },
    "groups": {"sdk/admin/group_results.py": ("GroupListing", "GroupDescription", "GroupMember", "CommittedOffset")},
    "iterator_calls": {"sdk/iterating/requests.py": ("GroupIterator", "IteratorBatch", "IteratorMembership")},
    "producer": {
        "sdk/producing/chunk.py": ("Receipt", "PutResult"),
        "sdk/producing/bulk.py": ("Receipts", "PutResults"),
        "sdk/producing/failures.py": ("OutcomeUnknownError", "UnstoredError"),
    },
    "subscription": {"sdk/subscribing/options.py": ()},
}
"""By page: which classes of which other files belong to it; without names, all of them."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module:
    """One source file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.constants = _constants(self.tree)

    def public(self, names: Sequence[str] = ()) -> Iterator[ast.ClassDef | Function]:
        """Its public functions and classes, in their order; those of these names, or all that say what they are.

        LookupError for a name that the file does not define.
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
    """Names with a plain value: those of the module, and those that it imports from ours."""
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
            except Exception:  # Not a plain value: nothing to show.
                continue
    return found


def signature(node: Function, module: Module) -> str:
    """How it is called, as Python writes it, each parameter on a line of its own where one line is too long."""
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
    """A class: what it is, its fields, its methods."""
    yield from (f"## class `{node.name}`", _doc(node), "")
    fields = list(_fields(node))
    if fields:
        yield from (*fields, "")
    for member in node.body:
        if isinstance(member, Function) and not member.name.startswith("_"):
            if any(isinstance(each, ast.Name) and each.id == "property" for each in member.decorator_list):
                yield f"### `{member.name}: {_type(member.returns)}`" if member.returns else f"### `{member.name}`"
                yield from (_doc(member), "")
            else:
                yield from function_lines(member, module, "###")


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """What the class, or its `__init__`, says it has, each with the text below it."""
    bodies = [node.body, *(each.body for each in node.body if isinstance(each, Function) and each.name == "__init__")]
    for body in bodies:
        for member, behind in zip(body, [*body[1:], None], strict=True):
            said = _text(behind)
            shown = _field(member, is_own=body is node.body, is_said=bool(said))
            if shown and not shown.startswith("_"):
                yield f"- `{shown}`" + (f": {said}" if said else "")


def _field(node: ast.stmt, *, is_own: bool, is_said: bool) -> str | None:
    """A field as its class writes it; what `__init__` sets counts where something is said of it."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        default = f" = {ast.unparse(node.value)}" if node.value else ""
        return f"{node.target.id}: {_type(node.annotation)}{default}"
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and is_own:
        return ast.unparse(node)
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute) and is_said:
        return node.targets[0].attr
    return None


def _text(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split())
    return ""


def _doc(node: ast.ClassDef | Function) -> str:
    """The docstring; what is indented in it is code."""
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
    """One page."""
    module = Module(path)
    name = path.stem
    lines = [f"# {name.replace('_', ' ').capitalize()}", ast.get_docstring(module.tree) or "", ""]
    nodes = list(module.public())
    for node in nodes:
        if not isinstance(node, ast.ClassDef) and node.decorator_list:  # Those are made to be called by users.
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
    """The table of errors."""
    tree = Module(SOURCE / "model" / "errors.py")
    table = next(node for node in tree.public(["ErrorCode"]) if isinstance(node, ast.ClassDef))
    lines = [
        "# Errors",
        "Every failure is a `millstream.MillstreamError` whose `code` is a row of this table (`millstream.ErrorCode`),",
        "and whose text says what it concerned. Within its timeouts, the SDK tries again what may be tried again.",
        "",
        "| code | number | may be tried again | meaning |",
        "|---|---|---|---|",
    ]
    for member in table.body:
        if isinstance(member, ast.Assign) and isinstance(member.targets[0], ast.Name):
            number, retriable, meaning = ast.literal_eval(member.value)
            lines.append(f"| {member.targets[0].id} | {number} | {'yes' if retriable else 'no'} | {meaning} |")
    return "\n".join(lines) + "\n"


def contents(names: Sequence[str]) -> str:
    """The page that leads to the others."""
    head = """# The SDK, class by class
Written by `scripts/reference.py` from the sources; [the guide](../sdk.md) says how they belong together. The classes
here block. `millstream.connect_async` gives their twins for asyncio, `AsyncClient` and so on: the same methods, to be
awaited, `async with` and `async for`.

"""
    return head + "".join(f"- [{name.replace('_', ' ').capitalize()}]({name}.md)\n" for name in names)


def expected() -> dict[Path, str]:
    """What should be there, by path."""
    sources = [path for path in sorted(CLASSES.glob("*.py")) if path.name not in INNER]
    pages = {TARGET / f"{path.stem}.md": page(path) for path in sources} | {TARGET / "errors.md": errors()}
    return pages | {TARGET / "README.md": contents(sorted(path.stem for path in pages))}


def stale() -> list[Path]:
    """The pages that are not what they should be, and those that should not be at all."""
    wanted = expected()
    changed = {path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text}
    return sorted(changed | (set(TARGET.glob("*.md")) - wanted.keys()))


def write() -> None:
    """Bring the pages up to date."""
    TARGET.mkdir(exist_ok=True)
    for path, text in expected().items():
        path.write_text(text, encoding="utf-8")
    for path in stale():
        path.unlink()


def main() -> int:
    if sys.argv[1:] == ["--check"]:
        found = stale()
        for path in found:
            print(f"{path.relative_to(ROOT)} is not fresh: run scripts/reference.py", file=sys.stderr)
        return 1 if found else 0
    write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
