"""Measures the shape of the sources: sizes, names, docstring openings, loose files, modules without an importer.

Pure functions over parsed modules; `test_tidy` holds their results to limits.
"""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

GENERATED = ("sdk/sync/", "gateway/grpc/v1/", "pipelines/templates/")
"""Generated code, and files that are copied to users."""

TEST_NAME_MAX = 80
_OPENINGS = re.compile(
    r"(?i:What|Who|Whoever|Whom|Whose|Whatever|Whether|Which|Where|When|Is|Are|Of|From|For who|How|So|As)\b"
)


@dataclass(frozen=True)
class Module:
    """One source file; `path` is relative to the repository."""

    path: str
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @cached_property
    def name(self) -> str:
        parts = self.path.removeprefix("src/").removesuffix(".py").split("/")
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def lines(self) -> int:
        """The number of lines without docstrings."""
        return self.source.count("\n") - docstring_lines(self.tree)


def modules(root: Path, folder: str) -> list[Module]:
    """The hand-written modules below `folder`."""
    paths = (str(path.relative_to(root)) for path in sorted((root / folder).rglob("*.py")) if ".work" not in path.parts)
    return [
        Module(path, (root / path).read_text(encoding="utf-8"))
        for path in paths
        if not any(part in path for part in GENERATED)
    ]


def docstring_lines(node: ast.AST) -> int:
    """The number of lines of all docstrings within a node, those of attributes included."""
    texts = (each.value for each in ast.walk(node) if isinstance(each, ast.Expr))
    return sum(
        text.end_lineno - text.lineno + 1
        for text in texts
        if isinstance(text, ast.Constant) and isinstance(text.value, str) and text.end_lineno is not None
    )


def sizes(module: Module, kinds: tuple[type[ast.AST], ...]) -> Iterator[tuple[int, str]]:
    """The number of lines without docstrings of each definition of these kinds, and its location."""
    for node in ast.walk(module.tree):
        if isinstance(node, kinds):
            assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            assert node.end_lineno is not None
            yield node.end_lineno - node.lineno + 1 - docstring_lines(node), f"{module.path}:{node.lineno} {node.name}"


def functions(found: Sequence[Module], over: int) -> list[str]:
    """The functions that are longer than `over` lines."""
    kinds = ast.FunctionDef, ast.AsyncFunctionDef
    return [f"{place}: {lines}" for module in found for lines, place in sizes(module, kinds) if lines > over]


def classes(found: Sequence[Module], over: int) -> list[str]:
    """The classes that are longer than `over` lines."""
    return [f"{place}: {lines}" for module in found for lines, place in sizes(module, (ast.ClassDef,)) if lines > over]


def files(found: Sequence[Module], over: int) -> list[str]:
    """The modules that are longer than `over` lines."""
    return [f"{module.path}: {module.lines}" for module in found if module.lines > over]


def shared_class_names(found: Sequence[Module]) -> dict[str, list[str]]:
    """The public classes whose name exists in more than one module."""
    homes: dict[str, list[str]] = defaultdict(list)
    for module in found:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module.name)
    return {name: where for name, where in homes.items() if len(where) > 1}


def riddles(found: Sequence[Module]) -> list[str]:
    """The modules whose docstring does not open with subject and verb."""
    return [module.path for module in found if _OPENINGS.match(ast.get_docstring(module.tree) or "")]


def all_riddles(found: Sequence[Module]) -> list[str]:
    """The classes and functions whose docstring does not open with subject and verb."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return [
        f"{module.path}:{node.lineno} {node.name}"
        for module in found
        for node in ast.walk(module.tree)
        if isinstance(node, kinds) and _OPENINGS.match(ast.get_docstring(node) or "")
    ]


def long_test_names(found: Sequence[Module]) -> list[str]:
    """The tests whose name is longer than `TEST_NAME_MAX`."""
    return [
        f"{module.path} {node.name}"
        for module in found
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and len(node.name) > TEST_NAME_MAX
    ]


def foreign_assignments(found: Sequence[Module]) -> list[str]:
    """The assignments to an attribute of another object, unless its class is in the same module."""
    return [
        f"{module.path}:{target.lineno} {ast.unparse(target)}"
        for module in found
        for target in _assigned_attributes(module.tree)
        if not (isinstance(target.value, ast.Name) and target.value.id in ("self", "cls"))
        and target.attr not in _own_attributes(module.tree)
    ]


def _assigned_attributes(tree: ast.Module) -> Iterator[ast.Attribute]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            yield from (part for part in parts if isinstance(part, ast.Attribute))


def _own_attributes(tree: ast.Module) -> set[str]:
    """The attributes that classes of the module define."""
    own = {
        target.attr
        for target in _assigned_attributes(tree)
        if isinstance(target.value, ast.Name) and target.value.id == "self"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            own.update(
                line.target.id
                for line in node.body
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
            )
    return own


def unasserted_invariants(found: Sequence[Module]) -> list[str]:
    """The modules whose docstrings state an invariant and that assert nothing.

    An assertion that only narrows a type does not count.
    """
    return [
        module.path
        for module in found
        if any(re.search(r"\bInvariants?\b", each) for each in _docstrings(module.tree))
        and not any(isinstance(node, ast.Assert) and not _only_narrows(node.test) for node in ast.walk(module.tree))
    ]


def _only_narrows(test: ast.expr) -> bool:
    """True for `isinstance(...)` and `... is not None`, which a type checker needs."""
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot):
        return isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value is None
    return isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "isinstance"


def _docstrings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def adjacent_integers(found: Sequence[Module]) -> list[str]:
    """The functions with two positional integers side by side, which a call may swap unnoticed."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return [
        f"{module.path}:{node.lineno} {node.name}"
        for module in found
        for node in ast.walk(module.tree)
        if isinstance(node, kinds) and _has_adjacent_integers(node.args)
    ]


def _has_adjacent_integers(arguments: ast.arguments) -> bool:
    positional = [_is_integer(each.annotation) for each in (*arguments.posonlyargs, *arguments.args)]
    return any(first and second for first, second in pairwise(positional))


def _is_integer(annotation: ast.expr | None) -> bool:
    """True for `int`, and for a union of `int` with None."""
    if isinstance(annotation, ast.BinOp):
        sides = annotation.left, annotation.right
        has_none = any(isinstance(side, ast.Constant) and side.value is None for side in sides)
        return has_none and any(_is_integer(side) for side in sides)
    return isinstance(annotation, ast.Name) and annotation.id == "int"


def crowded_folders(found: Sequence[Module], over: int) -> dict[str, int]:
    """The folders that hold more modules than `over`."""
    count = Counter(module.path.rpartition("/")[0] for module in found)
    return {folder: modules for folder, modules in sorted(count.items()) if modules > over}


def dead_modules(found: Sequence[Module], importers: Sequence[Module], texts: Sequence[str]) -> list[str]:
    """The modules that no package, no entry point and no module in use imports, and no text (settings) names."""
    known = {module.name for module in found}
    named = {name for name in known for text in texts if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.]*\w)", text)}
    roots = {module.name for module in found if module.path.endswith(("__init__.py", "__main__.py"))}
    by_name = {module.name: module for module in found}
    reached: set[str] = set()
    ahead = [*named, *roots, *(name for module in importers for name in _imports(module, known))]
    while ahead:
        name = ahead.pop()
        if name in known and name not in reached:
            reached.add(name)
            ahead.extend(_imports(by_name[name], known))
    return sorted(known - reached)


def _imports(module: Module, known: set[str]) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in known:
            yield node.value
