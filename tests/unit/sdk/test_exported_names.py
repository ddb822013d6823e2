"""Tests that users can import every class in the signatures of the SDK from `millstream`."""

import ast
import pydoc
import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import millstream

SOURCE = Path(millstream.__file__).parent
FACADES = sorted(path for name in ("aio", "sync") for path in (SOURCE / "sdk" / name).glob("*.py"))
FOR_TESTS = {"Clock", "Entropy", "Network", "Workers"}
"""Parameters of `connect` that are documented as being for tests."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def test_classes_in_public_signatures_can_be_imported_from_the_package() -> None:
    named = {found for path in FACADES for found in _classes_in_signatures(path)}
    assert {"TopicView", "Health", "Message", "ListedOffset", "ClusterView"} <= {each.__name__ for each in named}
    reached = set(named)
    waiting = list(named)
    while waiting:
        for found in _classes_of_fields(waiting.pop()) - reached:
            reached.add(found)
            waiting.append(found)
    missing = [each for each in reached if getattr(millstream, each.__name__, None) is not each]
    assert sorted(f"{each.__module__}.{each.__name__}" for each in missing) == []


def test_exported_names_are_the_same_for_tools_and_at_run_time() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    told = {
        alias.asname or alias.name: str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("millstream.")
        for alias in node.names
    }
    assert told == millstream._HOMES
    assert all(getattr(import_module(home), name) is getattr(millstream, name) for name, home in told.items())


def test_help_and_dir_show_the_exported_names_and_no_others() -> None:
    assert list(millstream.__all__) == sorted(millstream._HOMES)
    assert [name for name in dir(millstream) if not name.startswith("__")] == sorted(millstream.__all__)
    shown = pydoc.render_doc(millstream, renderer=pydoc.plaintext)  # type: ignore[attr-defined]
    for name in (
        "class Client(",
        "class Consumer(",
        "connect(bootstrap",
        "connect_async(",
        "Time = ",
        "StartPosition = ",
    ):
        assert name in shown, name


def test_type_aliases_in_reader_and_producer_signatures_can_be_imported() -> None:
    aliases = {"Time", "Moment", "Size", "StartPosition", "Position", "OnBadValue", "OnChange", "Values"}
    named = {
        name
        for path in FACADES
        for function in _public_functions(ast.parse(path.read_text(encoding="utf-8")))
        for name in _annotated_names(function)
    }
    assert aliases <= named
    assert aliases <= set(millstream.__all__)


def _classes_in_signatures(path: Path) -> Iterator[type]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    homes = {
        alias.asname or alias.name: (str(node.module), alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("millstream.")
        for alias in node.names
    }
    homes |= {
        node.name: (f"millstream.sdk.{path.parent.name}.{path.stem}", node.name)
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    for name in {name for function in _public_functions(tree) for name in _annotated_names(function)}:
        if name in homes and name not in FOR_TESTS:
            module, original = homes[name]
            found = getattr(import_module(module), original)
            if isinstance(found, type):
                yield found


def _public_functions(tree: ast.Module) -> Iterator[Function]:
    for node in tree.body:
        if isinstance(node, Function) and node.decorator_list and not node.name.startswith("_"):
            yield node
        if isinstance(node, ast.ClassDef) and "Portal" not in node.name and not node.name.endswith("Facade"):
            for member in node.body:
                if isinstance(member, Function) and not member.name.startswith("_") and not _is_overload(member):
                    yield member


def _is_overload(node: Function) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "overload" for each in node.decorator_list)


def _annotated_names(function: Function) -> set[str]:
    arguments = [*function.args.args, *function.args.kwonlyargs]
    annotations = [each.annotation for each in arguments if each.annotation] + [function.returns or ast.Constant(None)]
    found: set[str] = set()
    for annotation in annotations:
        for node in ast.walk(annotation):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= {each.id for each in ast.walk(ast.parse(node.value)) if isinstance(each, ast.Name)}
    return found


def _classes_of_fields(kind: type) -> set[type]:
    """Return the classes of Millstream that the public fields of a result class have."""
    if issubclass(kind, Enum) or not (hasattr(kind, "_fields") or hasattr(kind, "__dataclass_fields__")):
        return set()
    hints = get_type_hints(kind, vars(millstream) | vars(import_module(kind.__module__)))
    return {each for name, hint in hints.items() if not name.startswith("_") for each in _leaves(hint)}


def _leaves(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and not get_args(hint) and hint.__module__.startswith("millstream"):
        yield hint
    for each in get_args(hint):
        yield from _leaves(each)


@pytest.mark.parametrize(
    "options",
    [
        millstream.ConsumerOptions,
        millstream.SubscriptionOptions,
        millstream.IteratorOptions,
        millstream.ProducerOptions,
    ],
    ids=attrgetter("__name__"),
)
def test_help_of_an_options_class_lists_every_option(options: type) -> None:
    assert set(re.findall(r"`(\w+)`", options.__doc__ or "")) == {*options.__annotations__}
