"""Tests `millstream serve` as operators use it: the real command, real ports and real signals."""

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from builders.sdk.writing_client import WritingClient
from millstream.model.errors import MillstreamError
from millstream.process.exit_codes import (
    EXIT_ADDRESS,
    EXIT_BY_SECOND_SIGNAL,
    EXIT_CLEAN,
    EXIT_DATA_IN_USE,
    EXIT_SETTINGS,
)
from millstream.testing.real_broker import RealBroker

WAIT_S = 60.0
NO_GATEWAY = ("--http-port", "off", "--grpc-port", "off")
_SERVE_PAGE = (Path(__file__).parents[3] / "docs" / "serve.md").read_text(encoding="utf-8")
METRICS_DOCUMENTED = _SERVE_PAGE.partition("| metric | meaning |")[2].partition("## Logs")[0]


def page(broker: RealBroker, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{broker.operator_port}{path}", timeout=WAIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def until_connections(broker: RealBroker, count: int) -> None:
    """Wait until the broker has this many connections. The test's timeout limits the loop."""
    while f"\nmillstream_connections {count}\n" not in page(broker, "/metrics")[1]:
        pass


def serve(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, for starts that fail."""
    command = [sys.executable, "-m", "millstream.cli", "serve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, env=environment or None)


async def put(broker: RealBroker, topic: str, *values: bytes) -> None:
    async with await WritingClient.connect(broker.bootstrap, timeout_s=WAIT_S) as client:
        await client.put(topic, values)


async def first_value(broker: RealBroker, topic: str) -> bytes | None:
    async with await WritingClient.connect(broker.bootstrap, timeout_s=WAIT_S) as client:
        fetched = await client.fetch(topic, 0, 0, max_wait_ms=10_000)
        return fetched.records[0].value


def test_the_operator_pages_report_health_and_metrics(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data") as broker:
        asyncio.run(put(broker, "orders", b"one", b"two"))
        assert page(broker, "/ready") == (200, "ready\n")
        status, text = page(broker, "/health")
        health = json.loads(text)
        assert (status, health["status"], health["partitions"]) == (200, "ok", 1)
        assert page(broker, "/nothing")[0] == 404
        metrics = page(broker, "/metrics")[1]
    documented = set(re.findall(r"`((?:millstream|process)_\w+)`", METRICS_DOCUMENTED))
    assert set(re.findall(r"^# TYPE (\w+) ", metrics, flags=re.MULTILINE)) == documented
    families = {family.name: family for family in text_string_to_metric_families(metrics)}
    value = {name: family.samples[0].value for name, family in families.items() if family.samples}
    assert value["millstream_ready"] == 1
    assert value["millstream_partitions"] == 1
    assert value["millstream_log_messages"] == 2
    assert value["millstream_log_bytes"] > 0
    assert value["millstream_connections_accepted"] >= 1
    assert value["millstream_requests"] >= 2
    assert value["process_resident_memory_bytes"] > 0


def test_metrics_show_requests_errors_and_closed_connections(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data") as broker:
        asyncio.run(put(broker, "orders", b"one", b"two"))
        with socket.create_connection(("127.0.0.1", broker.port), timeout=WAIT_S) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert client.recv(1) == b"", "the broker closes the connection"
        asyncio.run(first_value(broker, "orders"))
        with pytest.raises(MillstreamError):
            asyncio.run(first_value(broker, "nothing"))
        until_connections(broker, 0)
        families = text_string_to_metric_families(page(broker, "/metrics")[1])
    samples = {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}
    assert samples["millstream_api_requests_total", "Puts"] >= 1
    assert samples["millstream_api_requests_total", "Fetch"] >= 1
    for api in ("Puts", "Fetch", "ApiVersions"):
        requests = samples["millstream_api_requests_total", api]
        assert samples["millstream_api_duration_seconds_bucket", api, "+Inf"] == requests
        assert samples["millstream_api_duration_seconds_count", api] == requests
        assert 0 < samples["millstream_api_duration_seconds_sum", api] < WAIT_S * requests
    errors = {key: value for key, value in samples.items() if key[0] == "millstream_api_errors_total"}
    assert {name for _, _, name in errors} == {"UNKNOWN_TOPIC_OR_PARTITION"}, errors
    assert samples["millstream_connections_closed_total", "malformed"] == 1
    assert samples["millstream_connections_closed_total", "client"] >= 3
    assert samples["millstream_connections_closed_total", "error"] == 0
    assert ("millstream_event_loop_lag_seconds_count",) in samples


def test_the_operator_port_can_be_switched_off(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data", extra_args=["--operator-port", "off"]) as broker:
        assert "/metrics" not in broker.log_text()
        asyncio.run(put(broker, "orders", b"one"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_broker_cleanly_during_a_long_poll(tmp_path: Path, number: signal.Signals) -> None:
    async def work(broker: RealBroker) -> int:
        async with await WritingClient.connect(broker.bootstrap, timeout_s=WAIT_S) as client:
            await client.put("orders", [b"one"])
            waiting = asyncio.create_task(client.fetch("orders", 0, 1, max_wait_ms=600_000, timeout_s=900))
            await asyncio.to_thread(until_connections, broker, 2)
            broker.signal(number)
            code = await asyncio.to_thread(broker.wait_ended, WAIT_S)
            waiting.cancel()
            await asyncio.wait([waiting])
        return code

    with RealBroker(tmp_path / "data") as broker:
        assert asyncio.run(work(broker)) == EXIT_CLEAN
        said = broker.log_text()
    assert f"stopping signal={number.name}" in said
    assert "broker stopped" in said
    assert "Traceback" not in said
    assert "error" not in said


def test_a_hangup_signal_is_logged_and_ignored(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data") as broker:
        broker.signal(signal.SIGHUP)
        asyncio.run(put(broker, "orders", b"one"))
        broker.signal(signal.SIGTERM)
        assert broker.wait_ended(WAIT_S) == EXIT_CLEAN
        assert "signal ignored, settings are read at the start only signal=SIGHUP" in broker.log_text()


def stop_that_hangs(watch: str, then: str) -> subprocess.CompletedProcess[str]:
    """Run a process that receives a signal, does not stop, and then runs `then`."""
    program = (
        "import asyncio, os, signal\n"
        "from millstream.process.signals import watch_signals\n"
        "async def hang():\n"
        "    stopping = asyncio.Event()\n"
        f"    watch_signals(stopping{watch})\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    await stopping.wait()\n"
        f"{then}"
        "asyncio.run(hang())\n"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_S)


def test_signals_in_quick_succession_count_as_one() -> None:
    again = "    for number in (signal.SIGTERM, signal.SIGINT):\n        os.kill(os.getpid(), number)\n"
    ended = stop_that_hangs(", 600.0", again + "    await asyncio.sleep(0.1)\n")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_second_signal_ends_a_hanging_stop() -> None:
    again = "    while True:\n        os.kill(os.getpid(), signal.SIGTERM)\n        await asyncio.sleep(0.1)\n"
    ended = stop_that_hangs("", again)
    assert ended.returncode == EXIT_BY_SECOND_SIGNAL
    assert "stopped immediately by a second signal" in ended.stderr


def test_stored_messages_survive_a_stop_and_a_kill(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data") as broker:
        asyncio.run(put(broker, "orders", b"one"))
        broker.restart()
        assert asyncio.run(first_value(broker, "orders")) == b"one"
        asyncio.run(put(broker, "others", b"two"))
        broker.kill()
        broker.start()
        assert asyncio.run(first_value(broker, "orders")) == b"one"
        assert asyncio.run(first_value(broker, "others")) == b"two"


def test_a_second_broker_on_the_same_data_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with RealBroker(data) as broker:
        second = serve("--data", str(data), "--kafka-port", "0", "--operator-port", "off")
        assert second.returncode == EXIT_DATA_IN_USE
        assert second.stdout == ""
        assert f"{data} is in use by process {broker.pid}" in second.stderr
        assert "Traceback" not in second.stderr
        asyncio.run(put(broker, "orders", b"one"))


def test_serve_check_reports_a_running_broker_and_starts_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with RealBroker(data) as broker:
        pid = broker.pid
        ports = ("--kafka-port", str(broker.port), "--operator-port", "off", *NO_GATEWAY)
        checked = serve("--data", str(data), *ports, "--check")
        wrong = serve("--check", "--flush", "never")
    assert (checked.returncode, checked.stderr) == (EXIT_DATA_IN_USE, "")
    assert f"problem  data directory {data}: in use by process {pid};" in checked.stdout
    assert f"problem  kafka_port {ports[1]}: cannot listen on" in checked.stdout
    assert wrong.returncode == EXIT_SETTINGS
    assert "flush = 'never' (--flush)" in wrong.stderr


def test_a_data_directory_given_twice_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (tmp_path / "link").symlink_to(data)
    ports = ("--kafka-port", "0", "--operator-port", "off")
    for both, said in (
        (f"{data},{data}", f"data: {data} twice"),
        (f"{data},{tmp_path / 'link'}", f"the same directory twice, as {data} and {tmp_path / 'link'}"),
    ):
        refused = serve("--data", both, *ports)
        assert refused.returncode == EXIT_SETTINGS
        assert said in refused.stderr
    assert not data.exists()


def test_a_broker_with_closed_standard_output_runs(tmp_path: Path) -> None:
    ports = " ".join(("--kafka-port", "0", "--operator-port", "off", *NO_GATEWAY))
    line = f"exec {sys.executable} -m millstream.cli serve --data {tmp_path / 'data'} {ports} >&-"
    with subprocess.Popen(["sh", "-c", line], stderr=subprocess.PIPE, text=True) as broker:
        assert broker.stderr is not None
        try:
            for said in broker.stderr:
                if "ready message not written" in said:
                    break
            broker.terminate()
            assert broker.wait(WAIT_S) == EXIT_CLEAN
        finally:
            broker.kill()


def test_the_printed_example_commands_work_from_any_directory(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data") as broker:
        printed = re.findall(r"^  (.* (?:put|get) greetings.*)$", broker.log_text(), flags=re.MULTILINE)
        ended = [
            subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=WAIT_S, cwd="/")
            for line in printed
        ]
    assert [each.returncode for each in ended] == [0, 0], ended
    assert ended[1].stdout == "hello\n"


def test_all_data_directories_must_be_given_at_every_start(tmp_path: Path) -> None:
    both = f"{tmp_path / 'one'},{tmp_path / 'two'}"
    with RealBroker(tmp_path / "unused", extra_args=["--data", both, "--default-partitions", "8"]) as broker:
        asyncio.run(put(broker, "orders", b"one"))
        assert broker.stop() == EXIT_CLEAN
    assert [path for path in (tmp_path / "one").iterdir() if path.is_dir()]
    assert [path for path in (tmp_path / "two").iterdir() if path.is_dir()]
    alone = serve("--data", str(tmp_path / "one"), "--kafka-port", "0", "--operator-port", "off")
    assert alone.returncode != EXIT_CLEAN
    assert alone.stderr.splitlines()[-1].startswith("millstream: ")


@pytest.mark.parametrize(("flag", "other"), [("--kafka-port", "--operator-port"), ("--operator-port", "--kafka-port")])
def test_a_port_in_use_is_reported_with_a_solution(tmp_path: Path, flag: str, other: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = serve("--data", str(tmp_path / "data"), flag, str(port), other, "0")
    assert refused.returncode == EXIT_ADDRESS
    assert refused.stdout == ""
    assert f"cannot listen on 127.0.0.1:{port}: " in refused.stderr
    assert f"choose another with {flag}" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_data_directory_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    refused = serve("--data", str(in_the_way / "data"), "--kafka-port", "0", "--operator-port", "off")
    assert refused.returncode == 1
    assert str(in_the_way) in refused.stderr
    assert "Traceback" not in refused.stderr


def test_invalid_settings_are_refused_with_their_source(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text("kafka_prot = 1\n")
    refused = serve("--config", str(config), "--flush", "never", MILLSTREAM_NODE="7")
    assert refused.returncode == EXIT_SETTINGS
    assert "flush = 'never' (--flush): expected one of always, interval, os" in refused.stderr
    assert f"there is no setting 'kafka_prot' (file {config}); did you mean kafka_port?" in refused.stderr
    assert "MILLSTREAM_NODE; did you mean MILLSTREAM_NODE_ID?" in refused.stderr


def test_file_environment_and_flags_reach_the_broker(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text('log_format = "json"\nnode_id = 5\ndefault_partitions = 9\n')
    environment = {"MILLSTREAM_CONFIG": str(config), "MILLSTREAM_DEFAULT_PARTITIONS": "3"}

    async def look(broker: RealBroker) -> tuple[list[int], int]:
        async with await WritingClient.connect(broker.bootstrap, timeout_s=WAIT_S) as client:
            await client.put("orders", [b"one"])
            view = await client.metadata([])
            return [*view.brokers], len((await client.describe_topic("orders")).partitions)

    with RealBroker(tmp_path / "data", extra_args=["--node-id", "6"], env=environment) as broker:
        assert asyncio.run(look(broker)) == ([6], 3)
        broker.stop()
        lines = [line for line in broker.log_text().splitlines() if line.startswith("{")]
    events = [json.loads(line) for line in lines]
    assert {event["level"] for event in events} == {"info"}
    names = [event["event"] for event in events]
    assert names[-2:] == ["stopping", "broker stopped"]
    assert "broker ready" in names
    applied = {event["setting"]: event["source"] for event in events if event["event"] == "setting applied"}
    assert applied.keys() >= {"log_format", "node_id", "default_partitions"}
