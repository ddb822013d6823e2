"""The published contract of gRPC keeps its style, and what Python needs of it is fresh."""

import re
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


def test_the_modules_are_what_the_script_writes() -> None:
    assert proto.stale() == []


def test_a_method_takes_its_own_request_and_gives_its_own_response(contract: list[FileDescriptorProto]) -> None:
    services = [service for file in contract for service in file.service]
    methods = [method for service in services for method in service.method]
    assert all(service.name.endswith("Service") for service in services)
    assert len({method.name for method in methods}) == len(methods)
    for method in methods:
        names = method.input_type, method.output_type
        assert names == (f".millstream_api.v1.{method.name}Request", f".millstream_api.v1.{method.name}Response")


def test_an_enum_begins_with_unspecified_and_its_values_with_its_name(contract: list[FileDescriptorProto]) -> None:
    for enum in (enum for file in contract for enum in file.enum_type):
        prefix = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", enum.name).upper()
        assert enum.value[0].name == f"{prefix}_UNSPECIFIED"
        assert all(value.name.startswith(f"{prefix}_") for value in enum.value)


def test_fields_are_snake_case_numbered_without_gaps_and_the_cluster_comes_first(
    contract: list[FileDescriptorProto],
) -> None:
    for message in (message for file in contract for message in file.message_type):
        assert all(SNAKE.fullmatch(field.name) for field in message.field), message.name
        assert [field.number for field in message.field] == list(range(1, len(message.field) + 1)), message.name
        assert all(field.number == 1 for field in message.field if field.name == "cluster"), message.name


def test_every_service_and_method_says_what_it_does(contract: list[FileDescriptorProto]) -> None:
    """Paths in source info: 6 is a service of the file, 2 a method of the service."""
    for file in contract:
        told = {tuple(place.path) for place in file.source_code_info.location if place.leading_comments.strip()}
        for number, service in enumerate(file.service):
            assert (6, number) in told, service.name
            for row, method in enumerate(service.method):
                assert (6, number, 2, row) in told, method.name
