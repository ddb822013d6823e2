"""Lists the ports that the settings of a broker name, and checks that they differ.

The gateway is a process of its own, which would fail only after the broker is ready. Its ports are therefore checked
before the start (`process.start_checks`).
"""

from collections.abc import Mapping

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.node.settings import BrokerSettings
from millstream.process.gateway_packages import missing_gateway_packages
from millstream.process.settings import PORT_OFF

PORT_FIELDS = ("kafka_port", "operator_port", "http_port", "grpc_port")
GATEWAY_FIELDS = ("http_port", "grpc_port")


def configured_ports(settings: BrokerSettings) -> Mapping[str, int]:
    """Returns the fixed ports by setting: neither switched off nor chosen by the system."""
    ports = {name: getattr(settings, name) for name in PORT_FIELDS}
    return {name: port for name, port in ports.items() if port not in (PORT_OFF, 0)}


def gateway_ports(settings: BrokerSettings) -> Mapping[str, int]:
    """Returns the fixed ports of the gateway that `millstream serve` starts: none if it is not installed."""
    ports = {name: port for name, port in configured_ports(settings).items() if name in GATEWAY_FIELDS}
    return {} if not ports or missing_gateway_packages() else ports


def check_distinct_ports(settings: BrokerSettings) -> None:
    """Raises INVALID_SETTING if two settings name the same port."""
    names: dict[int, str] = {}
    for name, port in configured_ports(settings).items():
        if port in names:
            text = f"{names[port]} and {name} are both {port}; choose another port with --{name.replace('_', '-')}"
            raise MillstreamError(ErrorCode.INVALID_SETTING, text)
        names[port] = name
