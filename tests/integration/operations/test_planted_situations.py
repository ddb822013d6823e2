"""Plants a situation in a real `millstream serve`, and diagnoses it from metrics, health and log alone.

Each test looks where the section of docs/operations.md tells the operator to look.
"""

import itertools
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import millstream
from builders.local_files import wait_until
from builders.operations.operator_view import OperatorView
from builders.requests import request_frame
from faults.small_volume import BrokerOnVolume, small_volume
from integration.broker.test_hostile_peers import read_frame
from millstream.testing.real_broker import RealBroker

SLOW_DISK = Path(__file__).parents[2] / "builders" / "operations" / "slow_disk"
SLOW_FLUSH_S = 1.5
MEGABYTE = bytes(1_000_000)


def write(broker: RealBroker, topic: str, *values: bytes) -> None:
    """Write messages, and wait until they are stored."""
    with millstream.connect(broker.bootstrap) as client, client.producer() as producer:
        producer.put_many(topic, list(values)).result()


def fill(broker: RealBroker, topic: str) -> None:
    """Write until the broker refuses messages of every size."""
    with millstream.connect(broker.bootstrap) as client, client.producer(timeout=0.5) as producer:
        for size in (500_000, 50_000, 5_000, 500):
            try:
                for _ in itertools.count():
                    producer.put(topic, bytes(size)).result()
            except millstream.MillstreamError:
                continue


def test_a_full_disk_shows_in_metrics_health_and_log_and_ends_with_free_space(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    with small_volume(volume, "24m") as holder:
        if holder is None:  # The simulated disk of tests/unit/storage/test_disk_reserve.py covers it.
            return
        data = str(volume / "data")
        with BrokerOnVolume(volume / "data", holder, "--segment-bytes", "1MiB") as broker:
            view = OperatorView(broker)
            write(broker, "kept", b"one")
            before = view.scrape()
            assert before.value("millstream_directory_writes_refused", directory=data) == 0
            assert view.health["status"] == "ok"
            # A refusal counts for 30 seconds. A stalled machine may take longer, so the test fills the disk again.
            load_until(lambda: fill(broker, "large"), lambda: view.has_problem("partition large-0 refuses writes"))
            total = view.scrape().value("millstream_directory_total_bytes", directory=data)
            assert view.scrape().value("millstream_api_errors_total", error="KAFKA_STORAGE_ERROR") > 0
            wait_until(lambda: view.scrape().value("millstream_directory_free_bytes", directory=data) < 0.05 * total)
            wait_until(lambda: view.scrape().value("millstream_directory_writes_refused", directory=data) == 1)
            assert view.has_problem(f"data directory {data} is full", "delete topics")
            assert view.page("/ready").status == 200, "reads are served"
            assert "No space left on device" in view.log_lines("write failed")[0]
            with millstream.connect(broker.bootstrap) as client:
                client.delete_topic("large")
            wait_until(lambda: view.health["status"] == "ok")
            assert view.scrape().value("millstream_directory_writes_refused", directory=data) == 0
            write(broker, "kept", b"two")


@contextmanager
def broker_with_slow_disk(data: Path, switch: Path) -> Iterator[RealBroker]:
    """Run a broker whose flushes are slow while the file `switch` exists."""
    paths = os.pathsep.join(filter(None, [str(SLOW_DISK), os.environ.get("PYTHONPATH")]))
    planted = {"PYTHONPATH": paths, "SLOW_DISK_SWITCH": str(switch), "SLOW_DISK_DELAY_S": str(SLOW_FLUSH_S)}
    with RealBroker(data, env=planted) as broker:
        yield broker


def test_a_slow_disk_shows_in_the_histograms_of_its_directory_and_in_health(tmp_path: Path) -> None:
    switch = tmp_path / "slow"
    with broker_with_slow_disk(tmp_path / "data", switch) as broker:
        view, directory = OperatorView(broker), str(broker.data_dir)
        write(broker, "orders", b"one")
        before = view.scrape()
        switch.touch()
        for number in range(3):
            write(broker, "orders", b"%d" % number)
        after = view.scrape()

        def slow(histogram: str, **labels: str) -> float:
            return after.above(histogram, 1, **labels) - before.above(histogram, 1, **labels)

        assert slow("millstream_fsync_seconds", directory=directory) >= 3
        assert slow("millstream_flush_seconds", directory=directory) >= 3
        assert slow("millstream_api_duration_seconds", api="Puts") >= 3
        assert slow("millstream_append_seconds", directory=directory) == 0, "the writes are not the cause"
        wait_until(lambda: view.has_warning("slow", directory))
        assert view.page("/ready").status == 200


def test_a_stuck_group_shows_as_growing_lag_with_an_old_commit_and_members(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data") as broker, millstream.connect(broker.bootstrap) as client:
        view = OperatorView(broker)
        write(broker, "orders", b"one", b"two")
        with client.consumer("orders", group="billing", start="beginning", auto_commit=None) as member:
            while not member.poll(timeout=1):
                pass
            member.commit()
            # From here on, the member stays in its group and handles nothing.
            write(broker, "orders", b"three")
            first = view.scrape()
            rebalances = view.log_lines("group rebalanced")
            write(broker, "orders", b"four")
            wait_until(lambda: lag(view) == 2)
            second = view.scrape()
            assert view.log_lines("group rebalanced") == rebalances, "the member does not fail and join again"
        assert first.value("millstream_group_lag", group="billing", topic="orders", partition="0") == 1
        assert second.value("millstream_group_offsets_committed_total") == first.value(
            "millstream_group_offsets_committed_total"
        )
        ages = [scrape.value("millstream_group_commit_age_seconds", group="billing") for scrape in (first, second)]
        assert 0 < ages[0] < ages[1]
        assert second.value("millstream_group_members") == 1
        (joined,) = view.log_lines("member joined")
        assert "group=billing" in joined
        assert "members=1" in rebalances[-1]


def lag(view: OperatorView) -> float:
    return view.scrape().value("millstream_group_lag", group="billing")


class BrokerWithoutWaiting(RealBroker):
    """A broker whose gateway never gets ready."""

    def wait_gateway(self, timeout_s: float = 0) -> None:
        """Do not wait."""


def test_a_gateway_that_does_not_start_shows_with_its_reason_while_kafka_works(tmp_path: Path) -> None:
    wrong = {"MILLSTREAM_GATEWAY_HEAD_MS": "soon"}
    with BrokerWithoutWaiting(tmp_path / "data", gateway=True, env=wrong) as broker:
        view = OperatorView(broker)
        wait_until(lambda: view.has_problem("the gateway exited with code 2", "MILLSTREAM_GATEWAY_HEAD_MS"))
        assert view.health["status"] == "degraded"
        ready = view.page("/ready")
        assert ready.status == 503
        assert "MILLSTREAM_GATEWAY_HEAD_MS" in ready.text
        scrape = view.scrape()
        assert scrape.series("millstream_child_up") == [({"child": "gateway"}, 0)]
        assert scrape.value("millstream_problems") == 1
        assert scrape.value("millstream_ready") == 1
        (line,) = view.log_lines("child exited, not restarting")
        assert "child=gateway code=2" in line
        write(broker, "orders", b"one")


def test_a_hot_partition_shows_in_the_busiest_partitions_and_as_a_warning(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data", flush="os") as broker, millstream.connect(broker.bootstrap) as client:
        view = OperatorView(broker)
        client.create_topic("visits", partitions=4)
        client.create_topic("orders", partitions=4)
        with client.producer() as producer:

            def load() -> None:
                for topic, numbers in (("visits", (2, 2, 2, 2, 2, 2, 0, 1, 3)), ("orders", (0, 1, 2, 3))):
                    for number in numbers:
                        producer.put(topic, MEGABYTE[:900_000], partition=number)
                producer.flush()

            load_until(load, lambda: view.has_warning("visits-2"))
        assert not view.has_warning("orders-")
        scrape = view.scrape()
        total = scrape.value("millstream_topic_produced_bytes_total", topic="visits")
        rows = scrape.series("millstream_partition_produced_bytes_total", topic="visits")
        busiest, most = max(rows, key=lambda row: row[1])
        assert busiest["partition"] == "2"
        assert most > total / 2
        assert [labels for labels, _ in scrape.series("millstream_hot_partition_share")] == [busiest]
        for _, value in scrape.series("millstream_partition_produced_bytes_total", topic="orders"):
            assert value < scrape.value("millstream_topic_produced_bytes_total", topic="orders") / 2


def load_until(load: Callable[[], None], is_so: Callable[[], bool]) -> None:
    """Repeat a load until the condition holds; the test's timeout limits the loop."""
    while not is_so():
        load()
        time.sleep(0.1)


def test_a_reconnect_loop_shows_with_the_client_that_causes_it(tmp_path: Path) -> None:
    hello = request_frame("ApiVersions", 0, client_id="billing-7")
    with RealBroker(tmp_path / "data") as broker, socket.create_connection(("127.0.0.1", broker.port)) as steady:
        view = OperatorView(broker)
        before = view.scrape()
        for _ in range(80):
            with socket.create_connection(("127.0.0.1", broker.port)) as connection:
                connection.sendall(hello)
                read_frame(connection)
        wait_until(lambda: view.scrape().value("millstream_connections") == 1)
        after = view.scrape()

        def grown(name: str, **labels: str) -> float:
            return after.value(name, **labels) - before.value(name, **labels)

        assert grown("millstream_connections_accepted_total") == 80
        assert grown("millstream_connections_closed_total", reason="client") == 80
        assert grown("millstream_api_requests_total", api="ApiVersions") == 80
        (line,) = view.log_lines("client reconnects often")
        assert "client_id=billing-7" in line
        assert "peer=127.0.0.1" in line
        assert view.has_warning("127.0.0.1", "billing-7")
        assert view.health["status"] == "ok", "the other clients are served"
        steady.sendall(hello)
        read_frame(steady)
