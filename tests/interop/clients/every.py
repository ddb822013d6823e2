"""The clients that the tests drive, and what each of them is able to."""

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
    """The names of the clients that can do all of these."""
    return [name for name, client in CLIENTS.items() if not client.cannot.keys() & set(abilities)]


def every_client(bootstrap: str) -> Mapping[str, Client]:
    """One of each. What needs a process starts it when it is first used."""
    return {name: client(bootstrap) for name, client in CLIENTS.items()}
