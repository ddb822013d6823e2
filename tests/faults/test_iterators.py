"""Kills the broker while a group reads with iterators over plain sockets.

Iterators in flight stay in flight, commits stay committed, and a commit with a lost answer can be repeated.
"""

import socket
import time
from pathlib import Path
from random import Random

from builders.requests import request_frame
from faults.load import create_topic
from faults.retrying import now_ms, put
from faults.rounds import SEED
from interop.wire import Fields, ask
from millstream.model.errors import ErrorCode
from millstream.records.batch import decode_batches, encode_batch
from millstream.testing.real_broker import RealBroker

TOPIC = "worked-off"
MESSAGES = 200
KILLS = 5
NAMES = {"group_id": "workers", "client_id": "one"}


def ask_until(port: int, api: str, fields: Fields) -> Fields:
    """Send a request until the answer is not a retriable error."""
    while True:
        answer = ask("127.0.0.1", port, api, 0, fields)
        if not ErrorCode.of(answer["error_code"]).retriable:
            return answer
        time.sleep(0.02)


def send(port: int, api: str, fields: Fields) -> socket.socket:
    """Send a request without reading its answer."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.sendall(request_frame(api, 0, dict(fields)))
    return connection


def fill(port: int) -> None:
    for first in range(0, MESSAGES, 20):
        values = [b"%d" % number for number in range(first, first + 20)]
        assert put("127.0.0.1", port, TOPIC, encode_batch(values, timestamps=now_ms()), None)["error_code"] == 0


def test_a_killed_broker_restores_iterators_and_committed_offsets(tmp_path: Path) -> None:
    random = Random(SEED)
    with RealBroker(tmp_path / "data") as broker:
        create_topic(broker.bootstrap, TOPIC, 1)
        port = broker.port
        fill(port)
        assert ask_until(port, "IteratorJoin", NAMES)["error_code"] == 0
        asked = {**NAMES, "topic": TOPIC, "partition": 0, "max_messages": 25, "in_flight_ms": 600_000}
        iterator = bytes(ask_until(port, "GetIterator", asked)["given"]["iterator"])
        done: list[bytes | None] = []
        kills = 0
        while len(done) < MESSAGES:
            answer = ask_until(port, "ReadIterator", {"iterator": iterator})
            assert answer["error_code"] == 0, answer["error_message"]
            records = decode_batches(bytes(answer["records"]))
            mine = [each for each in records if answer["offset"] <= each.offset < answer["end_offset"]]
            read = random.randint(1, len(mine))
            commit = {**NAMES, "iterator": bytes(answer["iterator"]), "count": read}
            if kills < KILLS:
                kills += 1
                with send(port, "CommitIterator", commit):
                    time.sleep(random.choice((0, 0.001, 0.005)))
                    broker.kill()
                broker.start()
            settled = ask_until(port, "CommitIterator", commit)
            assert settled["error_code"] == 0, settled["error_message"]
            assert settled["position"] == answer["offset"] + read
            iterator = bytes(settled["given"]["iterator"])
            again = ask_until(port, "GetIterator", asked)
            assert bytes(again["given"]["iterator"]) == iterator, "one iterator per client, group, topic and partition"
            done += [each.value for each in mine[:read]]
    assert done == [b"%d" % number for number in range(MESSAGES)]
    assert kills == KILLS
