"""Tests puts by hash and message ids: a message is stored once under its id, for any retry of any client."""

import pytest

from interop.wire_alone.calls import INIT_PRODUCER_ID
from interop.wire_alone.client import Broker, Connection, Fields

INVALID_PRODUCER_EPOCH, DUPLICATE_MESSAGE_ID = 47, 1011
PARTITIONS = 5


@pytest.mark.parametrize("by_hash", [0, 1, 4, 5, 123_456_789, -1, -5, -7, 2**63 - 1, -(2**63)])
def test_a_hash_chooses_the_partition_by_its_remainder(by_hash: int, millstream_bootstrap: str) -> None:
    with Connection(int(millstream_bootstrap.rpartition(":")[2])) as connection:
        topic = connection.create_topic(PARTITIONS)
        result = connection.put(topic, b"v", partition=-1, by_hash=by_hash)
        assert (result["error_code"], result["partition"]) == (0, by_hash % PARTITIONS)
        assert [each.value for each in connection.stored(topic, by_hash % PARTITIONS)] == [b"v"]


def producer_id(connection: Connection) -> int:
    answer = connection.ask(INIT_PRODUCER_ID, transactional_id=None, timeout_ms=60_000, producer_id=-1, epoch=-1)
    number: int = answer["producer_id"]
    return number


def crash(broker: Broker) -> None:
    """Kill the broker like `kill -9` and start it again."""
    broker.kill()
    broker.start()


def first_places(result: Fields) -> dict[int, int]:
    """Return the offsets of messages that were stored before, by their index in the batch."""
    assert result["error_code"] == DUPLICATE_MESSAGE_ID
    return {known["index"]: known["offset"] for known in result["known"]}


@pytest.mark.parametrize("crashes", [False, True], ids=["same broker", "killed broker"])
def test_a_retry_under_a_natural_id_returns_the_first_offset(crashes: bool, millstream_process: Broker) -> None:
    with Connection(millstream_process.port) as first:
        topic = first.create_topic()
        first.put(topic, b"before")
        assert first.put(topic, b"one", b"two", ids=[b"order-1", b"order-2"])["base_offset"] == 1
    if crashes:
        crash(millstream_process)
    with Connection(millstream_process.port) as second:
        assert first_places(second.put(topic, b"two again", ids=[b"order-2"])) == {0: 2}
        mixed = second.put(topic, b"three", b"one again", ids=[b"order-3", b"order-1"])
        assert first_places(mixed) == {1: 1}
        assert second.put(topic, b"three", ids=[b"order-3"])["base_offset"] == 3
        assert second.stored(topic) == [
            (0, b"before", None),
            (1, b"one", b"order-1"),
            (2, b"two", b"order-2"),
            (3, b"three", b"order-3"),
        ]


@pytest.mark.parametrize("crashes", [False, True], ids=["same broker", "killed broker"])
def test_a_retry_under_a_made_id_returns_the_first_offset(crashes: bool, millstream_process: Broker) -> None:
    with Connection(millstream_process.port) as first:
        topic = first.create_topic()
        writer = producer_id(first)
        first.put(topic, b"a", b"b", b"c", producer=(writer, 0, 0))
    if crashes:
        crash(millstream_process)
    with Connection(millstream_process.port) as second:
        assert first_places(second.put(topic, b"b", ids=[b"~%d.0.0.0.1" % writer])) == {0: 1}
        assert [each.value for each in second.stored(topic)] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("crashes", [False, True], ids=["same broker", "killed broker"])
def test_a_first_attempt_is_fenced_after_its_retry_by_made_id_was_stored(
    crashes: bool, millstream_process: Broker
) -> None:
    with Connection(millstream_process.port) as first, Connection(millstream_process.port) as second:
        topic = first.create_topic()
        writer = producer_id(first)
        first.put(topic, b"before", producer=(writer, 0, 0))
        # The retry arrives before the first attempt.
        made = b"~%d.0.0.1.0" % writer
        assert second.put(topic, b"late", ids=[made])["base_offset"] == 1
        if not crashes:
            assert first.put(topic, b"late", producer=(writer, 0, 1))["error_code"] == INVALID_PRODUCER_EPOCH
    if crashes:
        crash(millstream_process)
    with Connection(millstream_process.port) as third:
        assert third.put(topic, b"late", producer=(writer, 0, 1))["error_code"] == INVALID_PRODUCER_EPOCH
        assert first_places(third.put(topic, b"late", ids=[made])) == {0: 1}
        assert third.stored(topic) == [(0, b"before", None), (1, b"late", made)]
