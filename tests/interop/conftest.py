"""One broker and one of each client for a whole run of the tests between clients.

With INTEROP_BOOTSTRAP in the environment the tests meet that broker instead of a Penstock of their own: so Apache
Kafka itself can say whether a test asks for something that no broker does.
"""

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from interop.clients.aiokafka_client import AiokafkaClient
from interop.clients.client import AdminClient, Client, SettingsClient
from interop.clients.java import JavaClient
from interop.clients.kafka_python import KafkaPythonClient
from interop.clients.kcat import KcatClient
from interop.clients.librdkafka import ConfluentClient
from interop.clients.penstock_client import PenstockClient
from penstock.testing.real_broker import RealBroker

_numbers = itertools.count(os.getpid() * 1000)


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    given = os.environ.get("INTEROP_BOOTSTRAP")
    if given:
        yield given
        return
    data: Path = tmp_path_factory.mktemp("interop") / "data"
    with RealBroker(data, extra_args=["--cleaner-interval-ms", "200ms"]) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session")
def clients(bootstrap: str) -> Iterator[Mapping[str, Client]]:
    """All clients by name."""
    every: list[Client] = [
        ConfluentClient(bootstrap),
        KcatClient(bootstrap),
        AiokafkaClient(bootstrap),
        KafkaPythonClient(bootstrap),
        JavaClient(bootstrap),
        PenstockClient(bootstrap),
    ]
    try:
        yield {client.name: client for client in every}
    finally:
        for client in every:
            client.close()


@pytest.fixture(scope="session")
def admins(clients: Mapping[str, Client]) -> Mapping[str, AdminClient]:
    """Those of them that can create and delete topics."""
    return {name: client for name, client in clients.items() if isinstance(client, AdminClient)}


@pytest.fixture(scope="session")
def keepers(clients: Mapping[str, Client]) -> Mapping[str, SettingsClient]:
    """Those of them that can look after topics that are there."""
    return {name: client for name, client in clients.items() if isinstance(client, SettingsClient)}


@pytest.fixture(scope="session")
def new_name() -> Callable[[], str]:
    """Gives names that no other test uses."""
    return lambda: f"interop-{next(_numbers)}"


@pytest.fixture(scope="session")
def new_topic(clients: Mapping[str, Client], new_name: Callable[[], str]) -> Callable[..., str]:
    """Makes a topic of its own for a test: `new_topic(partitions=1, **settings)`."""
    maker = clients["confluent-kafka"]
    assert isinstance(maker, AdminClient)

    def make(partitions: int = 1, settings: Mapping[str, str] | None = None) -> str:
        name = new_name()
        maker.create_topic(name, partitions, settings=settings)
        return name

    return make
