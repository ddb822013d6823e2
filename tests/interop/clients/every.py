"""Lists the clients that the tests drive, with their abilities."""

from collections.abc import Mapping

from interop.clients.ability import Ability
from interop.clients.aiokafka_client import AiokafkaClient
from interop.clients.client import Client
from interop.clients.franz_go import FranzGoClient
from interop.clients.java import JavaClient
from interop.clients.java_tools import JavaToolsClient
from interop.clients.kafka_python import KafkaPythonClient
from interop.clients.kafkajs import KafkaJsClient
from interop.clients.kcat import KcatClient
from interop.clients.librdkafka import ConfluentClient
from interop.clients.millstream_client import MillstreamClient

CLIENTS: Mapping[str, type[Client]] = {
    client.name: client
    for client in (
        ConfluentClient,
        KcatClient,
        AiokafkaClient,
        KafkaPythonClient,
        JavaClient,
        JavaToolsClient,
        KafkaJsClient,
        FranzGoClient,
        MillstreamClient,
    )
}
NAMES = tuple(CLIENTS)


def able(*abilities: Ability) -> list[str]:
    """Return the names of the clients with all of these abilities."""
    return [name for name, client in CLIENTS.items() if not client.cannot.keys() & set(abilities)]


def every_client(bootstrap: str) -> Mapping[str, Client]:
    """Create one client of each kind. A client in another language starts its process at the first use."""
    return {name: client(bootstrap) for name, client in CLIENTS.items()}
