"""Tests `millstream gateway` as a process: stopped under load, started before its broker, and with its broker down."""

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from builders.gateways.processes import WAIT_S, RealGateway, ask, gateway, put, values
from millstream.testing.real_broker import RealBroker

DOCUMENTED = (Path(__file__).parents[3] / "docs" / "gateway.md").read_text(encoding="utf-8").partition("## Metrics")[2]


def until(what: Callable[[], bool]) -> None:
    """Wait until the condition holds; the test's timeout bounds it."""
    while not what():
        time.sleep(0.01)


def metrics(running: RealGateway) -> dict[str, float]:
    text = ask(f"{running.url}/metrics").body.decode()
    return {family.name: sum(each.value for each in family.samples) for family in text_string_to_metric_families(text)}


def test_operator_pages_report_readiness_health_and_documented_metrics(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data") as broker, gateway(broker.bootstrap, grpc=True) as running:
        until(lambda: ask(f"{running.url}/ready").status == 200)
        assert ask(f"{running.url}/ready").body == b"ready\n"
        assert ask(f"{running.url}/health").json["status"] == "ok"
        assert ask(f"{running.url}/ready", method="HEAD").body == b""
        assert ask(f"{running.url}/ready", {}).status == 405
        assert metrics(running)["millstream_gateway_ready"] == 1
        text = ask(f"{running.url}/metrics").body.decode()
        named = set(re.findall(r"^# TYPE (\w+) ", text, flags=re.MULTILINE))
        assert named == set(re.findall(r"`((?:millstream|process)_\w+)`", DOCUMENTED))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_long_polls_end_early_and_empty_when_the_gateway_stops(tmp_path: Path, number: signal.Signals) -> None:
    with RealBroker(tmp_path / "data") as broker, gateway(broker.bootstrap) as running:
        put(running.url, "orders", "one")
        with ThreadPoolExecutor(20) as pool:
            polls = [pool.submit(ask, f"{running.url}/events?topic=orders&offset=1&wait=60") for _ in range(20)]
            until(lambda: metrics(running)["millstream_gateway_requests_under_way"] >= 21)
            running.process.send_signal(number)
            answers = [poll.result(WAIT_S) for poll in polls]
        assert {answer.status for answer in answers} == {200}
        assert all(answer.json["events"] == [] for answer in answers)
        assert running.process.wait(WAIT_S) == 0


def test_every_accepted_post_is_answered_when_the_gateway_stops(tmp_path: Path) -> None:
    stored: list[str] = []

    def post_on(running: RealGateway, number: int) -> None:
        """Post on one connection until it closes, and record the answered posts."""
        with closing(http.client.HTTPConnection("127.0.0.1", running.http_port, timeout=WAIT_S)) as connection:
            for count in range(2_000):
                body = json.dumps({"topic": "orders", "value": f"{number} {count}"})
                try:
                    connection.request("POST", "/events", body, {"Content-Type": "application/json"})
                    answer = connection.getresponse()
                except (http.client.HTTPException, OSError):
                    return
                assert answer.status == 200, answer.read()
                answer.read()
                stored.append(f"{number} {count}")

    with RealBroker(tmp_path / "data") as broker:
        with gateway(broker.bootstrap) as running:
            writers = [threading.Thread(target=post_on, args=(running, number)) for number in range(4)]
            for writer in writers:
                writer.start()
            until(lambda: len(stored) > 100)
            assert running.stop() == 0
            for writer in writers:
                writer.join(WAIT_S)
        with gateway(broker.bootstrap) as another:
            found = ask(f"{another.url}/events?topic=orders&offset=beginning&wait=0&max_messages=10000").json["events"]
    assert sorted(stored) == sorted(set(stored) & {event["value"] for event in found})


def test_a_stopped_gateway_serves_until_the_notice_period_ends(tmp_path: Path) -> None:
    with (
        RealBroker(tmp_path / "data") as broker,
        gateway(broker.bootstrap, "--notice-ms", "600s", grpc=True) as running,
        grpc.insecure_channel(f"127.0.0.1:{running.grpc_port}") as channel,
    ):
        health: Any = health_pb2_grpc.HealthStub(channel)
        watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=WAIT_S)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        running.process.send_signal(signal.SIGTERM)
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        until(lambda: ask(f"{running.url}/ready").status == 503)
        assert ask(f"{running.url}/health").json["status"] == "draining"
        with closing(http.client.HTTPConnection("127.0.0.1", running.http_port, timeout=WAIT_S)) as connection:
            connection.request("POST", "/events", '{"topic": "orders", "value": "one"}')
            answer = connection.getresponse()
            assert (answer.status, answer.headers["Connection"]) == (200, "close")
        with ThreadPoolExecutor(1) as pool:
            poll = pool.submit(ask, f"{running.url}/events?topic=orders&offset=1&wait=60")
            until(lambda: metrics(running)["millstream_gateway_polls_waiting"] == 1)
            put(running.url, "orders", "two")
            assert [event["value"] for event in poll.result(WAIT_S).json["events"]] == ["two"]
        until(lambda: _ended_by_another_signal(running))
        assert running.process.returncode == 130


def _ended_by_another_signal(running: RealGateway) -> bool:
    running.process.send_signal(signal.SIGTERM)
    return running.process.poll() is not None


def test_an_unfinished_request_is_cut_off_after_the_drain_time(tmp_path: Path) -> None:
    with (
        RealBroker(tmp_path / "data") as broker,
        gateway(broker.bootstrap, "--drain-ms", "10ms") as running,
        closing(http.client.HTTPConnection("127.0.0.1", running.http_port, timeout=WAIT_S)) as connection,
    ):
        connection.putrequest("POST", "/events")
        connection.putheader("Content-Length", "1000")
        connection.endheaders(b"{")
        until(lambda: metrics(running)["millstream_gateway_requests_under_way"] == 2)
        assert running.stop() == 0
        with pytest.raises((http.client.HTTPException, OSError)):
            connection.getresponse()


def test_a_gateway_reports_an_unreachable_broker_and_recovers(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data") as broker:
        put_before = "one"
        with gateway(broker.bootstrap) as first:
            assert put(first.url, "orders", put_before).status == 200
        broker.kill()
        with gateway(broker.bootstrap, "--request-timeout-ms", "300ms") as running:
            for _ in range(2):
                refused = put(running.url, "orders", "lost")
                assert refused.status == 503
                assert refused.json["code"] == "NETWORK_EXCEPTION"
                assert refused.json["retriable"]
                assert broker.bootstrap in refused.json["detail"]
                broker.start()
                until(lambda: ask(f"{running.url}/events?topic=orders&offset=beginning&wait=0").status == 200)
                until(lambda: ask(f"{running.url}/ready").status == 200)
                assert values(running.url, "orders")[0] == put_before
                broker.kill()


def test_a_gateway_without_its_brokers_is_degraded_and_not_ready(tmp_path: Path) -> None:
    with (
        RealBroker(tmp_path / "data") as broker,
        RealBroker(tmp_path / "other") as other,
        gateway(broker.bootstrap, "--cluster", f"further={other.bootstrap}", grpc=True) as running,
        grpc.insecure_channel(f"127.0.0.1:{running.grpc_port}") as channel,
    ):
        health: Any = health_pb2_grpc.HealthStub(channel)
        watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=WAIT_S)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        until(lambda: ask(f"{running.url}/ready").status == 200)
        other.kill()
        until(lambda: ask(f"{running.url}/health").json["status"] == "degraded")
        (problem,) = ask(f"{running.url}/health").json["problems"]
        assert problem.startswith(f"the cluster further is not reachable at {other.bootstrap} since 20")
        assert ask(f"{running.url}/ready").status == 200, "the default cluster answers"
        assert (metrics(running)["millstream_problems"], metrics(running)["millstream_gateway_ready"]) == (1, 1)
        broker.signal(signal.SIGSTOP)  # It accepts connections, and answers nothing.
        until(lambda: ask(f"{running.url}/ready").status == 503)
        reason = f"not ready: the cluster default is not reachable at {broker.bootstrap} since 20"
        assert ask(f"{running.url}/ready").body.decode().startswith(reason)
        assert (metrics(running)["millstream_problems"], metrics(running)["millstream_gateway_ready"]) == (2, 0)
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        broker.signal(signal.SIGCONT)
        other.start()
        until(lambda: ask(f"{running.url}/health").json["problems"] == [])
        assert ask(f"{running.url}/ready").status == 200
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING


def test_invalid_gateway_settings_are_refused_with_their_source() -> None:
    command = [sys.executable, "-m", "millstream.cli", "gateway", "--http-port", "many", "--cluster", "nothing"]
    environment = {"MILLSTREAM_GATEWAY_HTTP_PROT": "1"}
    refused = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, env=environment)
    assert refused.returncode == 2
    assert "http_port = 'many' (--http-port): expected a whole number" in refused.stderr
    assert "cluster = 'nothing' (--cluster): expected name=value" in refused.stderr
    assert "MILLSTREAM_GATEWAY_HTTP_PROT; did you mean MILLSTREAM_GATEWAY_HTTP_PORT?" in refused.stderr


def test_a_gateway_that_listens_beyond_loopback_warns(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "millstream.cli", "gateway", "--host", "0.0.0.0"]
    ports = ["--http-port", "0", "--grpc-port", "off"]
    with subprocess.Popen([*command, *ports], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert any(line.startswith("Warning: No authentication") for line in process.stdout)
            process.terminate()
            assert "without authentication" in process.communicate(timeout=WAIT_S)[1].lower()
        finally:
            process.kill()
