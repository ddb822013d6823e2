"""Tests that every method of the contract is served and declares the right that it needs."""

import asyncio
import re
from typing import Any, Self

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

import proto
from builders.authorization.rights import Rights, all_rights, no_rights
from millstream.gateway.budget import Budget
from millstream.gateway.draining import Draining
from millstream.gateway.grpc.call_handling import CallDependencies, CallWrapper, RequiredRight, host_of
from millstream.gateway.grpc.limits import GrpcLimits
from millstream.gateway.grpc.server import services
from millstream.gateway.operations.cluster_create import NoSupervisor
from millstream.gateway.operations.clusters import ServedClusters
from millstream.gateway.traffic import Traffic
from millstream.model.authorization import ALLOW_ALL, Principal
from millstream.model.errors import MillstreamError
from millstream.model.rights import Right

SERVICES = services(GrpcLimits(), NoSupervisor())
METHODS = [(method, service) for descriptor, service in SERVICES.items() for method in descriptor.methods]

RESOURCES = {"topics": ("topic", "name"), "messages": ("topic", "topics"), "groups": ("group",), "cluster": ()}
"""The request fields that name the resource of a right, by the first word of the right."""


def test_every_service_of_the_contract_is_served() -> None:
    published = {
        name
        for path in proto.SOURCE.glob("*.proto")
        for name in re.findall(r"^service (\w+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    }
    assert {descriptor.name for descriptor in SERVICES} == published


@pytest.mark.parametrize(("method", "service"), METHODS, ids=[method.full_name for method, _ in METHODS])
def test_every_method_declares_a_right_and_its_resource(method: MethodDescriptor, service: object) -> None:
    function = getattr(service, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", method.name).lower())
    required: RequiredRight = function.needs
    assert required.right is not Right.NOTHING
    owner = method.input_type.fields_by_name[required.within].message_type if required.within else method.input_type
    assert owner is not None
    possible = [name for name in RESOURCES[required.right.value.partition(":")[0]] if name in owner.fields_by_name]
    assert required.field == (possible[0] if possible else "")


@pytest.mark.parametrize(("method", "service"), METHODS, ids=[method.full_name for method, _ in METHODS])
def test_every_method_is_refused_to_a_principal_without_rights(method: MethodDescriptor, service: object) -> None:
    function = getattr(service, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", method.name).lower())
    required: RequiredRight = function.needs
    with pytest.raises(MillstreamError) as failure:
        required.check(Rights(no_rights), Principal(), GetMessageClass(method.input_type)())
    assert failure.value.code is required.right.refusal


@pytest.mark.parametrize(
    ("name", "fields", "cluster"),
    [
        ("StopCluster", {"name": "other"}, "other"),
        ("StartCluster", {"name": "other"}, "other"),
        ("DeleteCluster", {"name": "other"}, "other"),
        ("CreateCluster", {"name": "other"}, "other"),
        ("ListTopics", {"cluster": "other"}, "other"),
        ("ListTopics", {}, "default"),
        ("ListClusters", {}, ""),
    ],
)
def test_a_right_is_checked_on_the_cluster_that_the_request_names(
    name: str, fields: dict[str, str], cluster: str
) -> None:
    method, service = next(row for row in METHODS if row[0].name == name)
    required: RequiredRight = getattr(service, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()).needs
    rights = Rights(all_rights)
    required.check(rights, Principal(), GetMessageClass(method.input_type)(**fields))
    assert set(rights.clusters) == {cluster}


@pytest.mark.parametrize(
    ("peer", "host"),
    [("ipv4:10.0.0.7:5000", "10.0.0.7"), ("ipv6:%5B::1%5D:5000", "::1"), ("unix:", "unix:"), ("unix:/a", "/a")],
)
def test_a_principal_has_the_host_of_its_peer(peer: str, host: str) -> None:
    assert host_of(peer) == host


def test_a_method_without_a_right_is_not_served() -> None:
    class Careless:
        def __getattr__(self, name: str) -> object:
            return lambda: None

    answering = CallWrapper(CallDependencies(ServedClusters({}), ALLOW_ALL, Draining(), Budget(), Traffic("grpc")))
    for descriptor in SERVICES:
        with pytest.raises(AttributeError, match="needs"):
            answering.handler(descriptor, Careless())


class RefusedContext:
    """The context of a call that is to be refused; records the status."""

    def __init__(self) -> None:
        self.statuses: list[grpc.StatusCode] = []

    def peer(self) -> str:
        return "ipv4:10.0.0.7:5000"

    async def abort(self, status: grpc.StatusCode, *_: object) -> None:
        self.statuses.append(status)


class SilentClient:
    """The messages of a client that has opened a stream and sends nothing. Reading them fails."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> object:
        raise ZeroDivisionError("a message of the refused stream was read")


def test_a_stream_without_any_right_is_refused_before_its_first_message() -> None:
    rights = Rights(no_rights, any_resource=False)
    wrapper = CallWrapper(CallDependencies(ServedClusters({}), rights, Draining(), Budget(), Traffic("grpc")))
    streaming = [(method, service) for method, service in METHODS if method.client_streaming]
    assert streaming
    for method, service in streaming:
        handler: Any = wrapper._row(method, service)
        context = RefusedContext()
        asyncio.run(handler.stream_stream(SilentClient(), context))
        assert context.statuses == [grpc.StatusCode.PERMISSION_DENIED]
    assert rights.principals == {Principal("10.0.0.7")}
