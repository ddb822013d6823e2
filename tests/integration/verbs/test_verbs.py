"""Calls every verb on every interface that has it, and expects the same results and the same error codes."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from integration.verbs.case import Case
from integration.verbs.group_cases import GROUP_CASES
from integration.verbs.shapes import Refused
from integration.verbs.stream_cases import STREAM_CASES
from integration.verbs.table import INTERFACES, VERBS, Verb
from integration.verbs.world import World

CASES = (*STREAM_CASES, *GROUP_CASES)
_BY_NAME = {verb.name: verb for verb in VERBS}
_TELL_FIELDS = ("http", "grpc")
_NAME_CLUSTERS = ("http", "grpc")


def _calls() -> Iterator[Any]:
    for case in CASES:
        for interface in INTERFACES:
            if _BY_NAME[case.verb].has(interface) and interface not in case.but:
                yield pytest.param(case, interface, id=f"{case.id} ({interface})")


@pytest.mark.parametrize(("case", "interface"), list(_calls()))
def test_a_verb_does_the_same_on_every_interface(
    case: Case, interface: str, adapters: Mapping[str, Any], world: World
) -> None:
    arguments = case.given(world)
    call = getattr(adapters[interface], case.verb)
    taken = {name: value for name, value in arguments.items() if name not in case.only_for_us}
    if case.fails is not None:
        with pytest.raises(Refused) as caught:
            call(**taken)
        assert caught.value.name == case.fails.name, caught.value
        assert case.says in str(caught.value)
        if case.field is not None and interface in _TELL_FIELDS:
            assert caught.value.field == case.field
        if case.title and interface == "http":
            assert caught.value.title == case.title
        return
    found = call(**taken)
    assert case.gives is not None
    assert case.seen(found, arguments) == case.gives(world, arguments)
    assert case.after is None or case.after(world, arguments)


def _in_clusters() -> Iterator[Any]:
    for verb in VERBS:
        for interface in _NAME_CLUSTERS:
            if verb.has(interface) and verb.row != "C1":
                yield pytest.param(verb, interface, id=f"{verb.name} ({interface})")


@pytest.mark.parametrize(("verb", "interface"), list(_in_clusters()))
def test_every_verb_refuses_an_unknown_cluster(
    verb: Verb, interface: str, adapters: Mapping[str, Any], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = next(case for case in CASES if case.verb == verb.name)
    arguments = {name: value for name, value in case.given(world).items() if name not in case.only_for_us}
    monkeypatch.setattr(adapters[interface], "cluster", "nowhere")
    with pytest.raises(Refused) as caught:
        getattr(adapters[interface], verb.name)(**arguments)
    assert (caught.value.name, caught.value.field) == ("UNKNOWN_CLUSTER", "cluster")
