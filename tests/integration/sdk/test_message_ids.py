"""Tests message ids through the producer: a retry under an id stores nothing twice, also from another process."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import millstream
from millstream.model.message_id import MadeId
from millstream.testing.embedded import EmbeddedBroker

LONG_S = 60.0
TOPIC = "t"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "data") as started:
        with millstream.connect(started.bootstrap) as client:
            client.create_topic(TOPIC, partitions=3)
        yield started


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[millstream.Client]:
    with millstream.connect(broker.bootstrap) as connected:
        yield connected


def count(client: millstream.Client) -> int:
    places = {millstream.TopicPartition(TOPIC, number): "latest" for number in range(3)}
    return sum(found.offset for found in client.offsets(places).values())


def test_a_retry_by_message_id_returns_the_first_offset_after_a_restart(
    broker: EmbeddedBroker, client: millstream.Client
) -> None:
    with client.producer() as producer:
        receipts = [producer.put(TOPIC, b"%d" % number, key=b"k%d" % number) for number in range(20)]
        places = [receipt.result(LONG_S) for receipt in receipts]
    assert all(place.message_id.startswith(b"~") for place in places)
    assert len({place.message_id for place in places}) == 20
    broker.restart()
    with client.producer() as producer:
        again = [producer.put(TOPIC, b"again", message_id=place.message_id) for place in places]
        assert [receipt.result(LONG_S) for receipt in again] == places
    program = (
        "import millstream\n"
        f"with millstream.connect({broker.bootstrap!r}) as client, client.producer() as producer:\n"
        f"    print(producer.put({TOPIC!r}, b'x', message_id={places[7].message_id!r}).result(60))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True)
    assert ran.stdout.strip() == repr(places[7]).removesuffix(")") + ", duplicate=True)"
    assert count(client) == 20


def test_a_consumer_reads_the_same_message_ids_as_the_receipts(client: millstream.Client) -> None:
    with client.producer() as producer:
        receipts = [producer.put(TOPIC, b"%d" % number, partition=0) for number in range(50)]
        receipts += producer.put_many(TOPIC, [b"%d" % number for number in range(50, 90)], partition=0)
        receipts.append(producer.put(TOPIC, b"90", partition=0, message_id="order-17"))
        producer.flush()
        never = MadeId(10**9, 0, 0, 0, 3)
        receipts.append(producer.put(TOPIC, b"91", message_id=never))
        expected = {receipt.result(LONG_S).offset: receipt.message_id for receipt in receipts}
    found = {each.offset: each.message_id for each in client.consumer(TOPIC, start="beginning", stop="latest")}
    assert found == expected
    assert found[91] == never.encode()


@pytest.mark.parametrize("own", ["order-17", b"\x00\xff", "x" * 255])
def test_a_message_with_a_natural_id_is_stored_once(own: str | bytes, client: millstream.Client) -> None:
    with client.producer() as producer:
        first = producer.put(TOPIC, b"a", message_id=own)
        assert first.message_id == (own.encode() if isinstance(own, str) else own)
        place = first.result(LONG_S)
        second, third = producer.put(TOPIC, b"b", message_id=own), producer.put(TOPIC, b"c", message_id=own)
        assert second.result(LONG_S) == third.result(LONG_S) == place
        assert [each.result(LONG_S).duplicate for each in (first, second, third)] == [False, True, True]
    assert count(client) == 1


def test_put_many_stores_new_ids_and_returns_known_offsets(client: millstream.Client) -> None:
    with client.producer() as producer:
        ids = [b"id-%d" % number for number in range(50)]
        first = producer.put_many(TOPIC, ids[:30], message_ids=ids[:30]).result(LONG_S)
        second = producer.put_many(TOPIC, ids, message_ids=ids).result(LONG_S)
        assert list(second)[:30] == list(first)
        assert not any(first.duplicates)
        assert second.duplicates == [each.duplicate for each in second] == [True] * 30 + [False] * 20
        mixed = producer.put_many(TOPIC, [b"x"] * 4, message_ids=[None, ids[0], None, ids[0]], keys=None).result(LONG_S)
        assert mixed[1] == mixed[3] == first[0]
    assert count(client) == 52


def test_ids_read_before_sending_are_valid_for_a_retry(client: millstream.Client) -> None:
    with client.producer(linger=3600) as producer:
        receipts = [producer.put(TOPIC, b"%d" % number) for number in range(10)]
        ids = [receipt.message_id for receipt in receipts[::2]]
        places = [receipt.result(LONG_S) for receipt in receipts]
        assert [receipt.message_id for receipt in receipts[::2]] == ids
        again = [producer.put(TOPIC, b"again", message_id=each) for each in ids]
        assert [receipt.result(LONG_S) for receipt in again] == places[::2]
    assert count(client) == 10


def test_a_retry_by_message_id_settles_an_unknown_outcome(broker: EmbeddedBroker) -> None:
    with millstream.connect(broker.bootstrap) as client:
        producer = client.producer(timeout=0.5)
        producer.put(TOPIC, b"first", partition=0).result(LONG_S)
        broker.pause()
        lost = [producer.put(TOPIC, b"lost", partition=0) for _ in range(2)]
        for receipt in lost:
            assert isinstance(receipt.exception(LONG_S), millstream.OutcomeUnknownError)
        ids = [receipt.message_id for receipt in lost]
        broker.resume()
        with client.producer() as other:
            places = [other.put(TOPIC, b"lost", message_id=each).result(LONG_S) for each in ids]
            assert [other.put(TOPIC, b"lost", message_id=each).result(LONG_S) for each in ids] == places
        assert sorted(place.offset for place in places) == [1, 2]
        assert count(client) == 3


def test_invalid_message_ids_are_refused_at_once(client: millstream.Client) -> None:
    with client.producer() as producer:
        for wrong in ("", "~mine", "x" * 256):
            with pytest.raises(millstream.MillstreamError, match="INVALID_MESSAGE_ID"):
                producer.put(TOPIC, b"v", message_id=wrong)
        with pytest.raises(millstream.MillstreamError, match="belongs to partition 2"):
            producer.put(TOPIC, b"v", message_id="~1.0.2.0.0", partition=1)
        with pytest.raises(ValueError, match=r"millstream\.id"):
            producer.put(TOPIC, b"v", headers={"millstream.id": b"x"})
