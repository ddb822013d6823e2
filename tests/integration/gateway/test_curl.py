"""What people do with curl: the five endpoints, as the announcement and the guides show them."""

import json
import subprocess
from typing import Any

from millstream.testing.real_broker import RealBroker


def curl(broker: RealBroker, *arguments: str, data: bytes | None = None) -> Any:
    """The answer's JSON."""
    *flags, path = arguments
    url = f"http://127.0.0.1:{broker.http_port}{path}"
    done = subprocess.run(["curl", "-sS", "--max-time", "60", *flags, url], input=data, capture_output=True, check=True)
    return json.loads(done.stdout) if done.stdout.startswith((b"{", b"[")) else done.stdout.decode()


def test_a_topic_is_made_written_and_read(broker: RealBroker) -> None:
    made = curl(broker, "-d", '{"name": "orders", "partitions": 2}', "/topic")
    assert made["name"] == "orders"
    again = curl(broker, "-d", '{"name": "orders"}', "/topic")
    assert (again["status"], again["code"]) == (409, "TOPIC_ALREADY_EXISTS")
    wrong = curl(broker, "-d", '{"name": "no spaces"}', "/topic")
    assert (wrong["status"], wrong["code"], wrong["field"]) == (422, "INVALID_TOPIC", "name")
    stored = curl(broker, "-d", '{"topic": "orders", "key": "a", "value": "hello"}', "/events")
    found = curl(broker, "/events?topic=orders")
    assert [(event["partition"], event["value"]) for event in found["events"]] == [(stored["partition"], "hello")]
    assert curl(broker, f"/events?topic=orders&wait=0&offset={found['next']}")["events"] == []


def test_a_file_is_posted_as_it_is(broker: RealBroker) -> None:
    data = bytes(range(256)) * 100
    flags = ("--data-binary", "@-", "-H", "Content-Type: application/octet-stream")
    stored = curl(broker, *flags, "/events?topic=files&key=all", data=data)
    assert stored["offset"] == 0
    (event,) = curl(broker, "/events?topic=files&format=base64")["events"]
    assert subprocess.run(["base64", "-d"], input=event["value_base64"].encode(), capture_output=True).stdout == data


def test_lines_are_posted_compressed_and_read_compressed(broker: RealBroker) -> None:
    lines = b"".join(b'{"value": {"number": %d}}\n' % number for number in range(5_000))
    packed = subprocess.run(["gzip"], input=lines, capture_output=True, check=True).stdout
    flags = ("--data-binary", "@-", "-H", "Content-Type: application/x-ndjson", "-H", "Content-Encoding: gzip")
    stored = curl(broker, *flags, "/events?topic=lines", data=packed)
    assert [row["offset"] for row in stored["events"]] == list(range(5_000))
    found = curl(broker, "--compressed", "/events?topic=lines&max_messages=10000&format=json")
    assert [event["value"]["number"] for event in found["events"]] == list(range(5_000))


def test_parameters_of_a_get_may_be_in_its_body(broker: RealBroker) -> None:
    curl(broker, "-d", '{"topic": "bodies", "value": "hello"}', "/events")
    found = curl(broker, "-X", "GET", "-d", '{"topic": "bodies", "wait": 0}', "/events")
    assert [event["value"] for event in found["events"]] == ["hello"]


def test_a_cluster_is_made_used_and_deleted_with_one_call_each(broker: RealBroker) -> None:
    made = curl(broker, "-d", '{"name": "lab", "brokers": 2}', "/cluster")
    assert [each["running"] for each in made["brokers"]] == [True, True]
    for name in ("a", "b", "c", "d"):
        assert curl(broker, "-d", f'{{"name": "{name}", "cluster": "lab"}}', "/topic")["cluster"] == "lab"
        stored = curl(broker, "-d", f'{{"topic": "{name}", "cluster": "lab", "value": "in {name}"}}', "/events")
        assert stored["offset"] == 0
    listed = curl(broker, "/v1/topics?cluster=lab&limit=3")
    assert [row["name"] for row in listed["topics"]] == ["a", "b", "c"]
    rest = curl(broker, f"/v1/topics?cluster=lab&after={listed['after']}")
    assert [row["name"] for row in rest["topics"]] == ["d"]
    (event,) = curl(broker, "/events?topic=d&cluster=lab")["events"]
    assert event["value"] == "in d"
    again = curl(broker, "-d", '{"name": "lab"}', "/cluster")
    assert (again["status"], again["code"]) == (409, "CLUSTER_EXISTS")
    assert curl(broker, "-X", "DELETE", "/v1/clusters/lab") == ""
    assert curl(broker, "/v1/topics?cluster=lab")["code"] == "UNKNOWN_CLUSTER"
