"""Tests that ports in use and settings with the same port are refused before the start."""

import socket

import pytest

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.node.settings import BrokerSettings
from millstream.process.start_checks.ports import check_ports
from millstream.supervisor.port_checks import check_distinct_ports, configured_ports, gateway_ports


def test_port_in_use_is_refused_and_the_error_names_its_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(MillstreamError, match=f"127.0.0.1:{port}: .*choose another with --grpc-port") as refused:
            check_ports("127.0.0.1", {"grpc_port": port}, patience_s=0.0)
    assert refused.value.code is ErrorCode.ADDRESS_UNAVAILABLE
    check_ports("127.0.0.1", {"grpc_port": port})
    check_ports("", {"grpc_port": port})


def test_a_host_without_address_is_refused() -> None:
    with pytest.raises(MillstreamError, match="cannot listen on no such host:1"):
        check_ports("no such host", {"http_port": 1}, patience_s=0.0)


def test_two_settings_with_the_same_port_are_refused() -> None:
    with pytest.raises(MillstreamError, match=r"kafka_port and http_port are both 8080; .*--http-port"):
        check_distinct_ports(BrokerSettings(kafka_port=8080))
    check_distinct_ports(BrokerSettings(kafka_port=0, operator_port=0, http_port=-1, grpc_port=-1))


def test_ports_that_are_off_or_chosen_by_the_system_are_not_checked() -> None:
    settings = BrokerSettings(kafka_port=0, operator_port=-1, http_port=8080, grpc_port=0)
    assert configured_ports(settings) == gateway_ports(settings) == {"http_port": 8080}
