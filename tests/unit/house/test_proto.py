"""Checks the style of the published gRPC contract, and that the generated modules are up to date."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

import proto

SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


@pytest.fixture(scope="module")
def contract(tmp_path_factory: pytest.TempPathFactory) -> list[FileDescriptorProto]:
    described: Path = tmp_path_factory.mktemp("contract") / "descriptors"
    proto.run_protoc(f"--descriptor_set_out={described}", "--include_source_info")
    return list(FileDescriptorSet.FromString(described.read_bytes()).file)


def test_the_generated_grpc_modules_are_up_to_date() -> None:
    assert proto.stale() == []


def test_code_generated_from_the_contract_can_be_imported_with_the_package(tmp_path: Path) -> None:
    proto.run_protoc(f"--python_out={tmp_path}", f"--grpc_python_out={tmp_path}")
    program = (
        "import sys, millstream\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from millstream_api.v1 import messages_pb2, messages_pb2_grpc\n"
        "from millstream.gateway.grpc.v1 import messages_pb2 as ours\n"
        "request = messages_pb2.PutRequest(topic='orders')\n"
        "assert messages_pb2.__file__.startswith(sys.argv[1])\n"
        "assert ours.PutRequest.FromString(request.SerializeToString()).topic == 'orders'\n"
        "print(messages_pb2_grpc.MessageServiceStub.__name__, millstream.Client.__module__)\n"
    )
    words = [sys.executable, "-c", program, str(tmp_path)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    assert ended.stdout.split() == ["MessageServiceStub", "millstream.sdk.sync.client"], ended.stderr


def test_each_grpc_method_has_its_own_request_and_response(contract: list[FileDescriptorProto]) -> None:
    services = [service for file in contract for service in file.service]
    methods = [method for service in services for method in service.method]
    assert all(service.name.endswith("Service") for service in services)
    assert len({method.name for method in methods}) == len(methods)
    for method in methods:
        names = method.input_type, method.output_type
        assert names == (f".millstream_api.v1.{method.name}Request", f".millstream_api.v1.{method.name}Response")


def test_grpc_enums_begin_with_unspecified_and_have_name_prefixes(contract: list[FileDescriptorProto]) -> None:
    for enum in (enum for file in contract for enum in file.enum_type):
        prefix = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", enum.name).upper()
        assert enum.value[0].name == f"{prefix}_UNSPECIFIED"
        assert all(value.name.startswith(f"{prefix}_") for value in enum.value)


def test_grpc_fields_are_snake_case_without_gaps_and_cluster_first(
    contract: list[FileDescriptorProto],
) -> None:
    for message in (message for file in contract for message in file.message_type):
        assert all(SNAKE.fullmatch(field.name) for field in message.field), message.name
        assert [field.number for field in message.field] == list(range(1, len(message.field) + 1)), message.name
        assert all(field.number == 1 for field in message.field if field.name == "cluster"), message.name


def test_every_grpc_service_and_method_has_a_comment(contract: list[FileDescriptorProto]) -> None:
    """Check the comments by their paths in the source info: 6 is a service, 2 a method of a service."""
    for file in contract:
        told = {tuple(place.path) for place in file.source_code_info.location if place.leading_comments.strip()}
        for number, service in enumerate(file.service):
            assert (6, number) in told, service.name
            for row, method in enumerate(service.method):
                assert (6, number, 2, row) in told, method.name
