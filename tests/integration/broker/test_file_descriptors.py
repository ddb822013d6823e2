"""Runs a real broker with few file descriptors: it serves known clients, log files and its operator port."""

import json
import re
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from builders.local_files import wait_until
from builders.requests import request_frame
from integration.broker.test_hostile_peers import connect, read_frame, write_and_read_back
from integration.broker.test_request_order import create, produce
from millstream.testing.real_broker import RealBroker
from millstream.wire.framing import read_response_header
from millstream.wire.messages import read_response

DESCRIPTORS = 300


class BrokerWithFewDescriptors(RealBroker):
    def command(self) -> list[str]:
        return ["sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$@"', "sh", *super().command()]


def page(broker: RealBroker, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.operator_port}{path}", timeout=60) as response:
        return str(response.read(), "utf-8")


def metric(broker: RealBroker, name: str) -> int:
    found = re.search(rf"^millstream_{name} (\d+)$", page(broker, "/metrics"), re.MULTILINE)
    assert found is not None
    return int(found[1])


def test_the_operator_port_and_new_requests_work_without_free_descriptors(tmp_path: Path) -> None:
    with BrokerWithFewDescriptors(tmp_path / "data") as broker, connect(broker) as known:
        write_and_read_back(broker)
        with ExitStack() as stack:
            for _ in range(DESCRIPTORS):
                stack.enter_context(connect(broker))
            # A client that was there before uses an API for the first time.
            known.sendall(request_frame("DescribeCluster", 1, {}))
            frame = read_frame(known)
            answer = read_response("DescribeCluster", 1, frame, read_response_header("DescribeCluster", 1, frame)[1])
            assert answer["error_code"] == 0
            assert json.loads(page(broker, "/health"))["status"] == "ok"
            wait_until(lambda: metric(broker, "connections_refused_total") > 0)
            assert broker.log_text().count("connection refused") == 1
        wait_until(lambda: metric(broker, "connections") == 1)
        write_and_read_back(broker)


def test_every_partition_accepts_writes_while_connections_are_refused(tmp_path: Path) -> None:
    topics = [f"t{number}" for number in range(DESCRIPTORS // 2 - 20)]
    with BrokerWithFewDescriptors(tmp_path / "data") as broker, connect(broker) as known:

        def ask(api: str, version: int, fields: dict[str, Any]) -> dict[str, Any]:
            known.sendall(request_frame(api, version, fields))
            frame = read_frame(known)
            return read_response(api, version, frame, read_response_header(api, version, frame)[1])

        for topic in topics:
            ask(*create(topic))
        with ExitStack() as stack:
            for _ in range(DESCRIPTORS + 100):
                stack.enter_context(connect(broker))
            wait_until(lambda: metric(broker, "connections_refused_total") > 100)
            answers = [ask(*produce(topic)) for topic in topics]
            codes = {each["responses"][0]["partition_responses"][0]["error_code"] for each in answers}
            assert codes == {0}
            assert ask(*create("one-more"))["topics"][0]["error_code"] == 0
            assert json.loads(page(broker, "/health"))["status"] == "ok"
