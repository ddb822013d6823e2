"""Restores the backup that docs/operations.md describes: a copy of the data directories of a stopped broker."""

import shutil
from pathlib import Path

import millstream
from builders.operations.operator_view import OperatorView
from millstream.testing.real_broker import RealBroker


def values(broker: RealBroker) -> list[bytes | None]:
    with millstream.connect(broker.bootstrap) as client:
        return [message.value for message in client.consumer("orders", start="beginning", stop="latest")]


def write(broker: RealBroker, *messages: str) -> None:
    with millstream.connect(broker.bootstrap) as client, client.producer() as producer:
        producer.put_many("orders", list(messages)).result()


def commit(broker: RealBroker) -> None:
    """Read and commit all messages as the group `billing`."""
    with (
        millstream.connect(broker.bootstrap) as client,
        client.consumer("orders", group="billing", start="beginning") as member,
    ):
        while not member.poll(timeout=1):
            pass
        member.commit()


def test_a_copy_of_all_directories_of_a_stopped_broker_restores_messages_and_groups(tmp_path: Path) -> None:
    data, second, copies = tmp_path / "data", tmp_path / "second", tmp_path / "backup"
    with RealBroker(data, extra_args=("--data", f"{data},{second}")) as broker:
        write(broker, "one", "two")
        commit(broker)
        broker.stop()
        shutil.copytree(data, copies / "data")
        shutil.copytree(second, copies / "second")
        broker.start()
        write(broker, "after the backup")
        broker.stop()
        for directory in (data, second):
            shutil.rmtree(directory)
            shutil.copytree(copies / directory.name, directory)
        broker.start()
        assert OperatorView(broker).health["status"] == "ok"
        assert values(broker) == [b"one", b"two"]
        with millstream.connect(broker.bootstrap) as client:
            (committed,) = client.groups.offsets("billing").values()
        assert committed.offset == 2
        write(broker, "three")
        assert values(broker) == [b"one", b"two", b"three"]
