"""Tests local clusters with real brokers, created over HTTP, by the command line and on the control socket."""

import asyncio
import json
import os
import resource
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from builders.gateways.processes import WAIT_S, ask, gateway, put, values
from millstream.gateway.grpc.v1 import cluster_pb2, cluster_pb2_grpc
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.process.control_protocol import SOCKET_NAME, Control, ControlRequest, NewCluster
from millstream.testing.real_broker import RealBroker

FILE_BYTES_MAX = 30_000
"""Large enough for a supervisor's small files, and too small for a broker's catalog."""


def until(what: Callable[[], bool]) -> None:
    """Wait until the condition holds; the test's timeout bounds it."""
    while not what():
        time.sleep(0.01)


def await_supervisor(broker: RealBroker) -> None:
    """Wait until the supervisor answers, which is shortly after the broker is ready."""
    asyncio.run(Control(broker.data_dir / SOCKET_NAME, WAIT_S).ask(ControlRequest("list")))


def millstream(broker: RealBroker, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "millstream.cli", "cluster", *arguments, "--data", str(broker.data_dir)]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)


def listed(broker: RealBroker) -> list[dict[str, Any]]:
    document: list[dict[str, Any]] = json.loads(millstream(broker, "list", "--json").stdout)
    return document


def are_up(broker: RealBroker) -> bool:
    return all(each["is_running"] for cluster in listed(broker) for each in cluster["brokers"])


def within(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


def test_a_local_cluster_is_created_used_and_deleted_over_http(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data", gateway=True) as broker:
        url = f"http://127.0.0.1:{broker.http_port}"
        made = ask(f"{url}/cluster", {"name": "orders", "brokers": 2, "partitions": 3})
        assert made.status == 201
        assert [each["running"] for each in made.json["brokers"]] == [True, True]
        for topic in ("a", "b", "c", "d"):
            assert put(url, topic, topic, cluster="orders").status == 200
        assert {topic: values(url, topic, "orders") for topic in "abcd"} == {topic: [topic] for topic in "abcd"}
        assert len(ask(f"{url}/v1/topics/a?cluster=orders").json["partitions"]) == 3
        assert ask(f"{url}/events?topic=a&offset=beginning&wait=0").status == 404
        home = tmp_path / "data" / "clusters" / "orders"
        assert within(home) == ["broker-1", "broker-2", "cluster.json"]
        again = ask(f"{url}/cluster", {"name": "orders"})
        assert (again.status, again.json["code"]) == (409, "CLUSTER_EXISTS")
        bad = ask(f"{url}/cluster", {"name": "others", "log_directories": ["../../elsewhere"]})
        assert (bad.status, bad.json["code"], bad.json["field"]) == (422, "INVALID_CLUSTER", "log_directories")
        assert ask(f"{url}/v1/clusters/orders", method="DELETE").status == 204
        assert within(home.parent) == []
        until(lambda: ask(f"{url}/events?topic=a&offset=beginning&wait=0&cluster=orders").status == 404)


def test_a_cluster_of_several_catalogs_finds_broker_settings_by_number(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data", gateway=True) as broker:
        url = f"http://127.0.0.1:{broker.http_port}"
        assert ask(f"{url}/cluster", {"name": "orders", "brokers": 2}).status == 201
        statuses = [ask(f"{url}/v1/brokers/{number}/settings?cluster=orders").status for number in (1, 2, 3)]
        assert statuses == [200, 200, 404]
        query = ask(f"{url}/v1/query?cluster=orders", {"sql": "SELECT name FROM topics"})
        assert (query.status, query.json["field"]) == (422, "cluster"), "one broker does not have all topics"


def test_local_clusters_restart_with_serve_unless_stopped(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data") as broker:
        await_supervisor(broker)
        made = millstream(broker, "create", "orders", "--brokers", "1", "--retention", "3d")
        assert made.returncode == 0, made.stderr
        address = made.stdout.removeprefix("Created cluster orders with 1 broker: ").strip()
        assert millstream(broker, "create", "idle", "--brokers", "1", "--log-directory", "disk").returncode == 0
        assert millstream(broker, "stop", "idle").stdout == "Stopped cluster idle.\n"
        broker.kill()
        broker.start()
        await_supervisor(broker)
        until(lambda: listed(broker)[1]["brokers"][0]["is_running"])
        idle, orders = listed(broker)
        assert (idle["is_stopped"], idle["brokers"][0]["is_running"]) == (True, False)
        assert f"{orders['brokers'][0]['host']}:{orders['brokers'][0]['port']}" == address
        assert orders["retention_ms"] == 3 * 24 * 3_600_000
        assert millstream(broker, "start", "idle").returncode == 0
        assert are_up(broker)
        assert millstream(broker, "delete", "idle", "--yes").stdout == "Deleted cluster idle.\n"
        assert within(tmp_path / "data" / "clusters") == ["orders"]
        assert broker.stop() == 0
        said = broker.log_text()
    assert "[orders 1] " in said
    assert 'cluster created peer="this machine" client_id=millstream-cli cluster=orders brokers=1' in said
    assert 'cluster deleted peer="this machine" client_id=millstream-cli cluster=idle brokers=1' in said
    assert "Traceback" not in said


def test_a_broker_reports_its_port_conflict_until_the_port_is_free(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data", gateway=True) as broker:

        def told() -> dict[str, Any]:
            found: dict[str, Any] = ask(f"http://127.0.0.1:{broker.http_port}/v1/clusters").json["made"][0]["brokers"][
                0
            ]
            return found

        made = ask(f"http://127.0.0.1:{broker.http_port}/cluster", {"name": "orders", "brokers": 1})
        port = made.json["brokers"][0]["port"]
        assert broker.stop() == 0
        with socket.create_server(("127.0.0.1", port)):
            broker.start()
            until(lambda: told()["problem"] is not None)
            assert not told()["running"]
            assert told()["problem"].startswith("broker 1 of orders exited with code 4: ")
            assert str(port) in told()["problem"]
            assert "restarting: broker 1 of orders exited with code 4" in millstream(broker, "list").stdout
            with grpc.insecure_channel(f"127.0.0.1:{broker.grpc_port}") as channel:
                stub: Any = cluster_pb2_grpc.ClusterServiceStub(channel)
                (orders,) = stub.ListClusters(cluster_pb2.ListClustersRequest(), timeout=WAIT_S).made
            assert (orders.name, orders.stopped, len(orders.brokers)) == ("orders", False, 1)
            assert orders.brokers[0].problem.startswith("broker 1 of orders exited with code 4: ")
        until(lambda: told()["running"])
        assert (told()["problem"], told()["port"]) == (None, port)


def test_a_killed_broker_of_a_local_cluster_restarts_with_its_data(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data", gateway=True) as broker:
        url = f"http://127.0.0.1:{broker.http_port}"
        ask(f"{url}/cluster", {"name": "orders", "brokers": 1})
        put(url, "a", "one", cluster="orders")
        lock = (tmp_path / "data" / "clusters" / "orders" / "broker-1" / ".lock").read_text()
        os.kill(int(lock.split()[0]), 9)
        until(lambda: put(url, "a", "two", cluster="orders").status == 200)
        assert values(url, "a", "orders") == ["one", "two"]


def test_a_cluster_that_fails_to_start_leaves_nothing_and_reports_why(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data") as broker:
        await_supervisor(broker)
        before = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, before[1]))
        refused = millstream(broker, "create", "orders", "--json")
        assert refused.returncode == 1
        told = json.loads(refused.stderr)
        assert told["error"] == "CLUSTER_NOT_STARTED"
        assert "of orders exited with code 1: " in told["message"]
        assert within(tmp_path / "data" / "clusters") == []
        assert listed(broker) == []
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, before)
        assert millstream(broker, "create", "orders", "--brokers", "1").returncode == 0


def test_a_second_gateway_learns_clusters_from_the_control_socket(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data") as broker:
        await_supervisor(broker)
        control = str(broker.data_dir / SOCKET_NAME)
        with gateway(broker.bootstrap, "--control", control) as first, gateway(broker.bootstrap) as alone:
            assert ask(f"{first.url}/cluster", {"name": "orders", "brokers": 1}).status == 201
            with gateway(broker.bootstrap, "--control", control) as second:
                until(lambda: put(second.url, "a", "one", cluster="orders").status == 200)
                assert values(first.url, "a", "orders") == ["one"]
            refused = ask(f"{alone.url}/cluster", {"name": "others"})
            assert (refused.status, refused.json["code"]) == (501, "NO_SUPERVISOR")
            assert put(alone.url, "a", "one", cluster="orders").json["code"] == "UNKNOWN_CLUSTER"


def test_a_gateway_serves_several_clusters_by_name(tmp_path: Path) -> None:
    with (
        RealBroker(tmp_path / "one") as one,
        RealBroker(tmp_path / "two") as two,
        gateway(one.bootstrap, "--cluster", f"archive={two.bootstrap}") as running,
    ):
        put(running.url, "orders", "here")
        put(running.url, "orders", "there", cluster="archive")
        assert values(running.url, "orders") == ["here"]
        assert values(running.url, "orders", "archive") == ["there"]


def test_the_control_socket_is_private_and_refuses_malformed_requests(tmp_path: Path) -> None:
    async def said(line: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(line)
        if not line.endswith(b"\n"):
            writer.write_eof()
        try:
            return await asyncio.wait_for(reader.read(), WAIT_S)
        finally:
            writer.close()

    async def refused(request: ControlRequest) -> ErrorCode:
        with pytest.raises(MillstreamError) as problem:
            await Control(path).ask(request)
        return problem.value.code

    with RealBroker(tmp_path / "data") as broker:
        await_supervisor(broker)
        path = broker.data_dir / SOCKET_NAME
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert b"INVALID_REQUEST" in asyncio.run(said(b"create\n"))
        assert b"INVALID_REQUEST" in asyncio.run(said(b'{"verb": "burn"}\n'))
        assert asyncio.run(said(b"x" * 200_000)) == b""
        assert asyncio.run(refused(ControlRequest("create"))) is ErrorCode.INVALID_REQUEST
        assert asyncio.run(refused(ControlRequest("stop", "nothing"))) is ErrorCode.UNKNOWN_CLUSTER
        assert asyncio.run(refused(ControlRequest("create", cluster=NewCluster("No")))) is ErrorCode.INVALID_CLUSTER
        broker.stop()
        assert not path.exists()
        assert asyncio.run(refused(ControlRequest("list"))) is ErrorCode.NO_SUPERVISOR
        nobody = millstream(broker, "list")
        assert nobody.returncode == 1
        assert "no supervisor answers at" in nobody.stderr


def test_a_data_directory_with_a_long_path_has_a_control_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("a" * 100) / ("b" * 100)
    with RealBroker(deep / "data") as broker:
        assert listed(broker) == []
