"""Every method of the contract is served, and declares the right that it needs."""

import re

import pytest
from google.protobuf.descriptor import MethodDescriptor

import proto
from millstream.gateway.budget import Budget
from millstream.gateway.draining import Draining
from millstream.gateway.grpc.call_handling import CallDependencies, CallWrapper, RequiredRight
from millstream.gateway.grpc.limits import GrpcLimits
from millstream.gateway.grpc.server import services
from millstream.gateway.operations.cluster_create import NoSupervisor
from millstream.gateway.operations.clusters import ServedClusters
from millstream.gateway.rights import ANYBODY, Right
from millstream.gateway.traffic import Traffic

SERVICES = services(GrpcLimits(), NoSupervisor())
METHODS = [(method, service) for descriptor, service in SERVICES.items() for method in descriptor.methods]

RESOURCES = {"topics": ("topic", "name"), "messages": ("topic", "topics"), "groups": ("group",), "cluster": ()}
"""The fields that name what a right is needed on, by the right's first word."""


def test_every_service_of_the_contract_is_served() -> None:
    published = {
        name
        for path in proto.SOURCE.glob("*.proto")
        for name in re.findall(r"^service (\w+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    }
    assert {descriptor.name for descriptor in SERVICES} == published


@pytest.mark.parametrize(("method", "service"), METHODS, ids=[method.full_name for method, _ in METHODS])
def test_every_method_declares_a_right_and_what_it_is_needed_on(method: MethodDescriptor, service: object) -> None:
    function = getattr(service, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", method.name).lower())
    required: RequiredRight = function.needs
    assert required.right is not Right.NOTHING
    owner = method.input_type.fields_by_name[required.within].message_type if required.within else method.input_type
    assert owner is not None
    possible = [name for name in RESOURCES[required.right.value.partition(":")[0]] if name in owner.fields_by_name]
    assert required.field == (possible[0] if possible else "")


def test_a_method_without_a_right_is_not_served() -> None:
    class Careless:
        def __getattr__(self, name: str) -> object:
            return lambda: None

    answering = CallWrapper(CallDependencies(ServedClusters({}), ANYBODY, Draining(), Budget(), Traffic("grpc")))
    for descriptor in SERVICES:
        with pytest.raises(AttributeError, match="needs"):
            answering.handler(descriptor, Careless())
