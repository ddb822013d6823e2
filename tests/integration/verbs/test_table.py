"""Tests that the table of verbs is complete and correct for every interface."""

import re
from collections.abc import Mapping
from inspect import getsource, isclass
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

import verbs_page
from integration.verbs.beside import CLI, ELSEWHERE, LATER, PROPERTIES, WIRE
from integration.verbs.group_cases import GROUP_CASES
from integration.verbs.over_cli import OverCli
from integration.verbs.over_grpc import OverGrpc
from integration.verbs.over_http import OverHttp
from integration.verbs.over_sdk import OverSdk
from integration.verbs.over_wire import OverWire
from integration.verbs.stream_cases import STREAM_CASES
from integration.verbs.table import INTERFACES, VERBS
from millstream.broker.dispatch import admin_apis, apis, group_apis, iterator_apis, push_apis
from millstream.cli.app import app
from millstream.gateway.grpc.limits import GrpcLimits
from millstream.gateway.grpc.server import services
from millstream.gateway.http.routes import OPERATIONS
from millstream.gateway.operations.cluster_create import NoSupervisor
from millstream.sdk.aio.admin import AsyncAdmin
from millstream.sdk.aio.client import AsyncClient
from millstream.sdk.aio.consumer import AsyncConsumer
from millstream.sdk.aio.facade import AsyncFacade
from millstream.sdk.aio.groups import AsyncGroups
from millstream.sdk.aio.iterator_calls import AsyncIteratorCalls
from millstream.sdk.aio.iterators import AsyncIterators
from millstream.sdk.aio.numbered_writer import AsyncNumberedWriter
from millstream.sdk.aio.producer import AsyncProducer
from millstream.sdk.aio.subscription import AsyncSubscription

CASES = (*STREAM_CASES, *GROUP_CASES)
ROOT = Path(__file__).parents[3]
ADAPTERS = {"wire": OverWire, "sdk": OverSdk, "http": OverHttp, "grpc": OverGrpc, "cli": OverCli}
FACES = {
    "client": AsyncClient,
    "admin": AsyncAdmin,
    "groups": AsyncGroups,
    "producer": AsyncProducer,
    "consumer": AsyncConsumer,
    "subscription": AsyncSubscription,
    "iterators": AsyncIterators,
    "calls": AsyncIteratorCalls,
    "numbered": AsyncNumberedWriter,
}
_ROW = re.compile(r"^\| ([TWRLCP]\d+) \| [^|]* \| ([^|]*) \|", re.MULTILINE)


def on_the_wire() -> set[str]:
    """The APIs of the broker's dispatch table, found by their table in the source."""
    sources = [
        Path(module.__file__ or "").read_text() for module in (apis, admin_apis, group_apis, iterator_apis, push_apis)
    ]
    return {name for source in sources for name in re.findall(r'\b\d+,\s*"([A-Z]\w+)"', source)} - WIRE.keys()


def in_the_sdk() -> set[str]:
    """Everything public of the client and its objects, with their base classes, except what closes them."""
    return {
        f"{face}.{name}"
        for face, kind in FACES.items()
        for base in kind.__mro__
        if base not in AsyncFacade.__mro__
        for name, member in vars(base).items()
        if not name.startswith("_") and name not in vars(AsyncFacade) and not isclass(member)
    }


def over_http() -> set[str]:
    return {f"{operation.method} {operation.path}" for operation in OPERATIONS}


def over_grpc() -> set[str]:
    found = services(GrpcLimits(), NoSupervisor())
    return {f"{service.name}.{method.name}" for service in found for method in service.methods}


def on_the_command_line() -> set[str]:
    whole = get_command(app)
    assert isinstance(whole, TyperGroup)
    found: set[str] = set()
    for name, command in whole.commands.items():
        if name not in CLI:
            found |= {f"{name} {each}" for each in command.commands} if isinstance(command, TyperGroup) else {name}
    return found


THERE = {
    "wire": on_the_wire,
    "sdk": in_the_sdk,
    "http": over_http,
    "grpc": over_grpc,
    "cli": on_the_command_line,
}


@pytest.mark.parametrize("interface", INTERFACES)
def test_the_table_names_everything_that_an_interface_offers_and_no_more(interface: str) -> None:
    named = {place for verb in VERBS for place in verb.places(interface)}
    there = THERE[interface]()
    attributes = {place for place in named - there if interface == "sdk" and _is_attribute(place)}
    assert (there - named, named - there - attributes) == (set(), set())


def _is_attribute(place: str) -> bool:
    """True if the constructor sets the attribute, which the class itself does not list."""
    face, _, name = place.partition(".")
    source = getsource(FACES[face])
    return re.search(rf"^ +self\.{name} = ", source, re.MULTILINE) is not None


@pytest.mark.parametrize("interface", INTERFACES)
def test_adapters_have_exactly_the_verbs_of_their_interface(interface: str) -> None:
    called = {name for name in vars(ADAPTERS[interface]) if not name.startswith("_")} - {"close"}
    assert called == {verb.name for verb in VERBS if verb.has(interface)}


def test_every_verb_has_a_unique_name_and_at_least_one_case() -> None:
    names = [verb.name for verb in VERBS]
    assert len(set(names)) == len(names)
    assert {case.verb for case in CASES} == set(names)
    assert len({case.id for case in CASES}) == len(CASES)


def states() -> Mapping[str, str]:
    """The state of each row of docs/spec-coverage.md."""
    return dict(_ROW.findall((ROOT / "docs" / "spec-coverage.md").read_text(encoding="utf-8")))


def test_every_coverage_row_has_verbs_or_a_reason_for_none() -> None:
    found = states()
    rows = {verb.row for verb in VERBS}
    assert found.keys() == rows | PROPERTIES.keys() | LATER.keys()
    assert not rows & (PROPERTIES.keys() | LATER.keys())
    assert not PROPERTIES.keys() & LATER.keys()
    assert {row for row in LATER if found[row] != "not yet"} == set()
    assert {row for row in rows if found[row] == "not yet"} == set()


def test_the_verbs_page_matches_the_table() -> None:
    assert verbs_page.written() == verbs_page.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("place", ELSEWHERE.values())
def test_the_tests_named_beside_the_table_exist(place: str) -> None:
    file, _, name = place.partition("::")
    assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")
