"""Tests the embedded broker as its users do: with a Kafka client, an adjusted clock, and faults."""

import gc
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.testing import EmbeddedBroker

TOPIC = "orders"
LONG_S = 60.0


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def put(broker: EmbeddedBroker, *values: str, timeout_ms: int = 30_000) -> list[KafkaError | None]:
    """Write messages, and return the result of each."""
    results: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        results.append(error)

    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": timeout_ms, "linger.ms": 0})
    for value in values:
        producer.produce(TOPIC, value, on_delivery=delivered)
    assert producer.flush(LONG_S) == 0
    return results


def ends(broker: EmbeddedBroker) -> tuple[int, int]:
    """Return the log start offset and the next offset."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "ends"})
    try:
        first, following = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=LONG_S)
        return first, following
    finally:
        consumer.close()


def test_a_kafka_client_writes_to_an_embedded_broker(broker: EmbeddedBroker) -> None:
    assert put(broker, "a", "b") == [None, None]
    assert ends(broker) == (0, 2)


@pytest.mark.parametrize("end", [EmbeddedBroker.stop, EmbeddedBroker.kill, EmbeddedBroker.restart])
def test_acknowledged_messages_survive_stop_kill_and_restart(
    broker: EmbeddedBroker, end: Callable[[EmbeddedBroker], object]
) -> None:
    put(broker, "a", "b", "c")
    address = broker.bootstrap
    end(broker)
    if not broker.is_running:
        broker.start()
    assert broker.bootstrap == address
    assert ends(broker) == (0, 3)
    assert put(broker, "d") == [None]


def test_a_group_reads_and_commits(broker: EmbeddedBroker) -> None:
    put(broker, "a", "b")
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    for expected in (b"a", b"b"):
        consumer = Consumer(settings | {"enable.auto.commit": "false"})
        consumer.subscribe([TOPIC])
        message = consumer.poll(LONG_S)
        assert message is not None
        assert message.value() == expected
        consumer.commit(message=message, asynchronous=False)
        consumer.close()


def test_advancing_the_clock_expires_old_messages(broker: EmbeddedBroker) -> None:
    put(broker, "old")
    broker.clock.advance(timedelta(days=8))
    put(broker, "new")
    assert ends(broker) == (1, 2)


def test_setting_the_wall_clock_keeps_the_monotonic_clock(broker: EmbeddedBroker) -> None:
    before_s = broker.clock.monotonic_s()
    broker.clock.set_wall(datetime(2031, 5, 1, tzinfo=UTC))
    assert datetime.fromtimestamp(broker.clock.wall_ms() / 1000, UTC).year == 2031
    assert broker.clock.monotonic_s() - before_s < timedelta(days=1).total_seconds()


@pytest.mark.parametrize("fault", ["is_full", "writes_fail", "flushes_fail"])
def test_the_broker_acknowledges_no_write_until_its_failing_disk_is_healed(broker: EmbeddedBroker, fault: str) -> None:
    put(broker, "before")
    setattr(broker.disk, fault, True)
    (error,) = put(broker, "meanwhile", timeout_ms=500)
    assert error is not None
    broker.disk.heal()
    assert put(broker, "after") == [None]


def test_clients_reconnect_after_their_connections_are_cut(broker: EmbeddedBroker) -> None:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=LONG_S) as peer:
        give_up_s = time.monotonic() + LONG_S
        while not broker.network.connections and time.monotonic() < give_up_s:
            time.sleep(0.01)
        broker.network.cut()
        try:
            assert peer.recv(1) == b""
        except ConnectionResetError:
            pass
    assert put(broker, "a") == [None]


def test_the_broker_is_unreachable_until_its_refusing_network_is_healed(broker: EmbeddedBroker) -> None:
    broker.network.refuse()
    with pytest.raises(KafkaException):
        Producer({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=0.5)
    broker.network.heal()
    assert put(broker, "a") == [None]


def test_a_paused_broker_answers_after_it_resumes(broker: EmbeddedBroker) -> None:
    put(broker, "a")
    broker.pause()
    with pytest.raises(KafkaException):
        Producer({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=0.5)
    with pytest.raises(RuntimeError, match="call resume"):
        broker.upkeep()
    broker.resume()
    assert put(broker, "b") == [None]


def test_a_killed_broker_closes_just_accepted_connections(broker: EmbeddedBroker) -> None:
    broker.pause()  # The connections wait, and are accepted when the broker resumes to be killed.
    with ExitStack() as stack, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        peers = [stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), LONG_S)) for _ in range(4)]
        broker.kill()
        for peer in peers:
            with suppress(ConnectionResetError):
                assert peer.recv(1) == b""
        gc.collect()
    assert [str(each.message) for each in warned] == []
    broker.start()


def test_the_clock_may_advance_while_the_broker_is_paused(broker: EmbeddedBroker) -> None:
    put(broker, "a")
    broker.pause()
    broker.clock.advance(timedelta(days=1))
    broker.resume()
    assert put(broker, "b") == [None]


def test_an_embedded_broker_accepts_the_settings_of_serve() -> None:
    with EmbeddedBroker(default_partitions=3) as broker:
        put(broker, "a")
        topics = Producer({"bootstrap.servers": broker.bootstrap}).list_topics(TOPIC, timeout=LONG_S).topics
        assert len(topics[TOPIC].partitions) == 3


def test_an_invalid_setting_is_named_and_leaves_no_thread() -> None:
    threads = threading.active_count()
    with pytest.raises(MillstreamError, match="default_partitions") as raised, EmbeddedBroker(default_partitions=0):
        pass
    assert raised.value.code is ErrorCode.INVALID_SETTING
    assert threading.active_count() == threads


def test_data_in_a_given_directory_is_kept(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        put(broker, "a")
    with EmbeddedBroker(tmp_path) as broker:
        assert ends(broker) == (0, 1)


def test_data_in_a_temporary_directory_is_removed() -> None:
    with EmbeddedBroker() as broker:
        put(broker, "a")
        assert broker.data_dir.exists()
    assert not broker.data_dir.exists()


def test_two_embedded_brokers_are_independent(broker: EmbeddedBroker) -> None:
    with EmbeddedBroker() as other:
        put(other, "a")
        put(broker, "b", "c")
        assert (ends(other), ends(broker)) == ((0, 1), (0, 2))
