"""The table of verbs is whole and true: whatever an interface can do has a row, and what a row says is there."""

import re
from collections.abc import Mapping
from inspect import getsource, isclass
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

import verbs_page
from integration.verbs.beside import CLI, LATER, PROPERTIES, WIRE
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
    """The APIs of the broker's dispatch table, which is a table in its source too."""
    sources = [
        Path(module.__file__ or "").read_text() for module in (apis, admin_apis, group_apis, iterator_apis, push_apis)
    ]
    return {name for source in sources for name in re.findall(r'\b\d+,\s*"([A-Z]\w+)"', source)} - WIRE.keys()


def in_the_sdk() -> set[str]:
    """Everything public of what a client is and makes, but for how all of it is closed."""
    return {
        f"{face}.{name}"
        for face, kind in FACES.items()
        for name, member in vars(kind).items()
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
def test_whatever_an_interface_can_do_belongs_to_a_verb_and_nothing_else_is_named(interface: str) -> None:
    named = {place for verb in VERBS for place in verb.places(interface)}
    there = THERE[interface]()
    attributes = {place for place in named - there if interface == "sdk" and _is_attribute(place)}
    assert (there - named, named - there - attributes) == (set(), set())


def _is_attribute(place: str) -> bool:
    """Whether it is set by the constructor, which the class itself does not tell."""
    face, _, name = place.partition(".")
    source = getsource(FACES[face])
    return re.search(rf"^ +self\.{name} = ", source, re.MULTILINE) is not None


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_verb_can_be_called_exactly_where_its_row_says_that_it_is(interface: str) -> None:
    called = {name for name in vars(ADAPTERS[interface]) if not name.startswith("_")} - {"close"}
    assert called == {verb.name for verb in VERBS if verb.has(interface)}


def test_every_verb_is_called_and_by_one_name() -> None:
    names = [verb.name for verb in VERBS]
    assert len(set(names)) == len(names)
    assert {case.verb for case in CASES} == set(names)
    assert len({case.id for case in CASES}) == len(CASES)


def states() -> Mapping[str, str]:
    """What docs/spec-coverage.md says of each row."""
    return dict(_ROW.findall((ROOT / "docs" / "spec-coverage.md").read_text(encoding="utf-8")))


def test_every_row_of_what_there_shall_be_has_verbs_or_a_reason_to_have_none() -> None:
    found = states()
    rows = {verb.row for verb in VERBS}
    assert found.keys() == rows | PROPERTIES.keys() | LATER.keys()
    assert not rows & (PROPERTIES.keys() | LATER.keys())
    assert not PROPERTIES.keys() & LATER.keys()
    assert {row for row in LATER if found[row] != "not yet"} == set()
    assert {row for row in rows if found[row] == "not yet"} == set()


def test_the_page_is_what_the_table_says() -> None:
    assert verbs_page.written() == verbs_page.PAGE.read_text(encoding="utf-8")
