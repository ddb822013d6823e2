"""Tests with a real broker that the settings of a group survive a restart."""

from pathlib import Path
from typing import Any

from interop.wire import ask
from millstream.testing.real_broker import RealBroker

GROUP = 32
SESSION = "consumer.session.timeout.ms"


def described(broker: RealBroker) -> Any:
    wanted = {"resource_type": GROUP, "resource_name": "readers", "configuration_keys": [SESSION]}
    (answer,) = ask("127.0.0.1", broker.port, "DescribeConfigs", 4, {"resources": [wanted]})["results"]
    return answer["configs"][0]["value"]


def test_settings_of_a_group_survive_a_crash(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data") as broker:
        assert described(broker) == "45000"
        change = {"name": SESSION, "config_operation": 0, "value": "50000"}
        resource = {"resource_type": GROUP, "resource_name": "readers", "configs": [change]}
        ask("127.0.0.1", broker.port, "IncrementalAlterConfigs", 1, {"resources": [resource]})
        broker.kill()
        broker.start()
        assert described(broker) == "50000"
