"""Provides one broker with a gateway, and an adapter per interface."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from integration.verbs.over_cli import OverCli
from integration.verbs.over_grpc import OverGrpc
from integration.verbs.over_http import OverHttp
from integration.verbs.over_sdk import OverSdk
from integration.verbs.over_wire import OverWire
from integration.verbs.world import World
from millstream.testing.real_broker import RealBroker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBroker]:
    with RealBroker(tmp_path_factory.mktemp("verbs") / "data", gateway=True) as started:
        yield started


@pytest.fixture(scope="module")
def adapters(broker: RealBroker) -> Iterator[Mapping[str, Any]]:
    """The adapters by name of the interface."""
    made: dict[str, Any] = {
        "wire": OverWire(broker.port),
        "sdk": OverSdk(broker.bootstrap),
        "http": OverHttp(broker.http_port),
        "grpc": OverGrpc(broker.grpc_port),
        "cli": OverCli(broker.bootstrap, broker.data_dir),
    }
    try:
        yield made
    finally:
        for adapter in made.values():
            adapter.close()


@pytest.fixture(scope="module")
def world(broker: RealBroker, adapters: Mapping[str, Any]) -> Iterator[World]:
    made = World(broker, adapters["http"])
    try:
        yield made
    finally:
        made.close()
