"""Provides one broker and one client of each kind for all interoperability tests.

`--peer kafka` runs the same tests against Apache Kafka, which shows if a test requires more than Kafka does.
"""

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from faults.proxy import CutProxy
from interop.clients.client import AdminClient, Client, SettingsClient
from interop.clients.every import every_client
from interop.kafka_broker import KafkaBroker
from millstream.testing.real_broker import RealBroker

# Short intervals, so that tests need not wait: members of the consumer protocol learn of a change with their next
# heartbeat, and the cleaner compacts topics at its interval.
QUICK = ("--consumer-heartbeat-interval-ms", "500", "--cleaner-interval-ms", "200ms")
_BROKER_HOST, _PROXY_HOST = "127.0.0.1", "127.0.0.2"
_numbers = itertools.count(os.getpid() * 1000)


@dataclass(frozen=True)
class Frail:
    """A broker that a test may restart, behind a proxy that can cut connections."""

    broker: RealBroker | KafkaBroker
    wire: CutProxy

    @property
    def bootstrap(self) -> str:
        """The proxy's address, which the broker also advertises."""
        return f"{_PROXY_HOST}:{self.broker.port}"


@pytest.fixture(scope="session")
def is_kafka(pytestconfig: pytest.Config) -> bool:
    return bool(pytestconfig.getoption("--peer") == "kafka")


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory, is_kafka: bool) -> Iterator[str]:
    directory: Path = tmp_path_factory.mktemp("interop")
    with KafkaBroker(directory / "kafka") if is_kafka else RealBroker(directory / "data", extra_args=QUICK) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def frail(tmp_path_factory: pytest.TempPathFactory, is_kafka: bool) -> Iterator[Frail]:
    directory: Path = tmp_path_factory.mktemp("frail")
    flags = (*QUICK, "--host", _BROKER_HOST, "--advertised-host", _PROXY_HOST)
    with ExitStack() as stack:
        broker: RealBroker | KafkaBroker
        if is_kafka:
            broker = stack.enter_context(KafkaBroker(directory / "kafka", _PROXY_HOST))
        else:
            broker = stack.enter_context(RealBroker(directory / "data", extra_args=flags))
        yield Frail(broker, stack.enter_context(CutProxy(_PROXY_HOST, broker.port, _BROKER_HOST)))


@pytest.fixture(scope="session")
def clients(bootstrap: str) -> Iterator[Mapping[str, Client]]:
    """Provide all clients by name."""
    every = every_client(bootstrap)
    try:
        yield every
    finally:
        for client in every.values():
            client.close()


@pytest.fixture
def client(request: pytest.FixtureRequest, clients: Mapping[str, Client]) -> Client:
    """Provide the client with which a test runs; see `each_that_can`."""
    return clients[request.param]


@pytest.fixture(scope="session")
def admins(clients: Mapping[str, Client]) -> Mapping[str, AdminClient]:
    """Provide the clients with admin calls."""
    return {name: client for name, client in clients.items() if isinstance(client, AdminClient)}


@pytest.fixture(scope="session")
def keepers(clients: Mapping[str, Client]) -> Mapping[str, SettingsClient]:
    """Provide the clients that can replace all settings and change single ones."""
    return {name: client for name, client in clients.items() if isinstance(client, SettingsClient)}


@pytest.fixture(scope="session")
def new_name() -> Callable[[], str]:
    """Provide a function that returns unique names."""
    return lambda: f"interop-{next(_numbers)}"


@pytest.fixture(scope="session")
def new_topic(clients: Mapping[str, Client], new_name: Callable[[], str]) -> Callable[..., str]:
    """Provide a function that creates a new topic: `new_topic(partitions=1, **settings)`."""
    maker = clients["confluent-kafka"]
    assert isinstance(maker, AdminClient)

    def make(partitions: int = 1, settings: Mapping[str, str] | None = None) -> str:
        name = new_name()
        maker.create_topic(name, partitions, settings=settings)
        return name

    return make
