"""Tests two gateways behind nginx with the configuration of docs/gateway.md; requests go to either."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from builders.gateways.processes import WAIT_S, RealGateway, ask, gateway, put
from millstream.testing.real_broker import RealBroker

PAGE = (Path(__file__).parents[3] / "docs" / "gateway.md").read_text(encoding="utf-8")
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
COUNT = 40


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def configuration(port: int, directory: Path, *gateways: RealGateway) -> str:
    """The example of the page, with ports of this test."""
    example = re.search(r"```nginx\n(.*?)```", PAGE, flags=re.DOTALL)
    assert example
    body = example[1].replace("listen 80;", f"listen 127.0.0.1:{port};")
    for number, each in enumerate(gateways, 1):
        body = body.replace(f"10.0.0.{number}:8080", f"127.0.0.1:{each.http_port}")
    temporary = " ".join(
        f"{name}_temp_path {directory / name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return (
        f"daemon off; worker_processes 1; pid {directory / 'pid'}; error_log stderr warn;\n"
        f"events {{ worker_connections 256; }}\nhttp {{ access_log off; {temporary}\n{body} }}\n"
    )


@contextmanager
def nginx(directory: Path, *gateways: RealGateway) -> Iterator[str]:
    """Run a balancer in front of these gateways and yield its address."""
    assert NGINX is not None, "nginx is missing; scripts/needs test installs it"
    port = free_port()
    file = directory / "nginx.conf"
    file.write_text(configuration(port, directory, *gateways))
    with subprocess.Popen([NGINX, "-p", str(directory), "-c", str(file)]) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            _await_answer(url, process)
            yield url
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(WAIT_S)


def _await_answer(url: str, process: "subprocess.Popen[bytes]") -> None:
    while True:
        assert process.poll() is None, "nginx has ended"
        try:
            if ask(f"{url}/ready").status == 200:
                return
        except OSError:
            pass
        time.sleep(0.01)


def requests_of(each: RealGateway) -> float:
    figures = ask(f"{each.url}/metrics").body
    return sum(map(int, re.findall(rb"^millstream_gateway_requests_total{.*} (\d+)", figures, flags=re.MULTILINE)))


def test_a_consumer_behind_a_balancer_gets_every_message_once_in_order(tmp_path: Path) -> None:
    with (
        RealBroker(tmp_path / "data") as broker,
        gateway(broker.bootstrap) as first,
        gateway(broker.bootstrap) as second,
        nginx(tmp_path, first, second) as url,
    ):
        before = [requests_of(each) for each in (first, second)]
        for start in range(0, COUNT, 10):
            assert put(url, "orders", *map(str, range(start, start + 10))).status == 200
        got: list[str] = []
        while len(got) < COUNT:
            poll = ask(f"{url}/events?topic=orders&group=billing&consumer=a&max_messages=3&wait=5")
            assert poll.status == 200, poll.body
            got += [event["value"] for event in poll.json["events"]]
            committed = ask(f"{url}/offset", {"group": "billing", "consumer": "a"})
            assert committed.status == 200, committed.body
        assert got == [str(number) for number in range(COUNT)]
        grown = [requests_of(each) - count for each, count in zip((first, second), before, strict=True)]
        assert min(grown) > COUNT / 10


def test_stopping_one_gateway_behind_a_balancer_fails_no_request(tmp_path: Path) -> None:
    with (
        RealBroker(tmp_path / "data") as broker,
        gateway(broker.bootstrap) as first,
        gateway(broker.bootstrap) as second,
        nginx(tmp_path, first, second) as url,
    ):
        put(url, "orders", "one")
        statuses = []
        for number in range(COUNT):
            if number == COUNT // 2:
                assert first.stop() == 0
            statuses.append(ask(f"{url}/events?topic=orders&offset=0&wait=0").status)
        assert statuses == [200] * COUNT


def test_requests_with_the_load_balancers_origin_are_accepted_and_others_refused(tmp_path: Path) -> None:
    with (
        RealBroker(tmp_path / "data") as broker,
        gateway(broker.bootstrap) as first,
        gateway(broker.bootstrap) as second,
        nginx(tmp_path, first, second) as url,
    ):
        assert ask(f"{url}/topic", {"name": "orders"}, headers={"Origin": url}).status == 201
        assert ask(f"{url}/topic", {"name": "bills"}, headers={"Origin": "http://elsewhere.example"}).status == 403
