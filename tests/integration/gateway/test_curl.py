"""Tests the five endpoints with curl, as the startup message and the guides show them."""

import json
import subprocess
from typing import Any

from millstream.testing.real_broker import RealBroker


def curl(broker: RealBroker, *arguments: str, data: bytes | None = None) -> Any:
    """Run curl and return the answer as JSON, or as text if it is not JSON."""
    *flags, path = arguments
    url = f"http://127.0.0.1:{broker.http_port}{path}"
    done = subprocess.run(["curl", "-sS", "--max-time", "60", *flags, url], input=data, capture_output=True, check=True)
    return json.loads(done.stdout) if done.stdout.startswith((b"{", b"[")) else done.stdout.decode()


def test_curl_creates_writes_and_reads_a_topic(broker: RealBroker) -> None:
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


def test_curl_posts_a_file_byte_for_byte(broker: RealBroker) -> None:
    data = bytes(range(256)) * 100
    flags = ("--data-binary", "@-", "-H", "Content-Type: application/octet-stream")
    stored = curl(broker, *flags, "/events?topic=files&key=all", data=data)
    assert stored["offset"] == 0
    (event,) = curl(broker, "/events?topic=files&format=base64")["events"]
    assert subprocess.run(["base64", "-d"], input=event["value_base64"].encode(), capture_output=True).stdout == data


def test_curl_posts_and_reads_compressed_ndjson(broker: RealBroker) -> None:
    lines = b"".join(b'{"value": {"number": %d}}\n' % number for number in range(5_000))
    packed = subprocess.run(["gzip"], input=lines, capture_output=True, check=True).stdout
    flags = ("--data-binary", "@-", "-H", "Content-Type: application/x-ndjson", "-H", "Content-Encoding: gzip")
    stored = curl(broker, *flags, "/events?topic=lines", data=packed)
    assert [row["offset"] for row in stored["events"]] == list(range(5_000))
    found = curl(broker, "--compressed", "/events?topic=lines&max_messages=10000&format=json")
    assert [event["value"]["number"] for event in found["events"]] == list(range(5_000))


def test_curl_sends_get_parameters_in_a_body(broker: RealBroker) -> None:
    curl(broker, "-d", '{"topic": "bodies", "value": "hello"}', "/events")
    found = curl(broker, "-X", "GET", "-d", '{"topic": "bodies", "wait": 0}', "/events")
    assert [event["value"] for event in found["events"]] == ["hello"]


def test_curl_commits_by_consumer_id_in_a_cluster_with_alternative_names(broker: RealBroker) -> None:
    fields = '"num_brokers": 1, "log_directory": "logs", "partitions": 1, "retention_policies": 86400000'
    made = curl(broker, "-d", f'{{"name": "shop", {fields}}}', "/cluster")
    assert (len(made["brokers"]), made["log_directories"], made["partitions"]) == (1, ["logs"], 1)
    assert made["retention_ms"] == 86_400_000
    assert (broker.data_dir / "clusters" / "shop" / "logs" / "broker-1").is_dir()
    curl(broker, "-d", '{"name": "liked", "cluster": "shop"}', "/topic")
    curl(broker, "-d", '{"topic": "liked", "cluster": "shop", "value": "first"}', "/events")
    polling = ("-X", "GET", "-d", '{"topic": "liked", "cluster": "shop", "consumer_id": 7}', "/events")
    assert [event["value"] for event in curl(broker, *polling)["events"]] == ["first"]
    assert [event["value"] for event in curl(broker, *polling)["events"]] == ["first"], "not committed yet"
    committed = curl(broker, "-d", '{"consumer_id": 7, "cluster": "shop"}', "/offset")
    assert committed == {
        "group": "consumer-7",
        "consumer": "7",
        "offsets": [{"topic": "liked", "partition": 0, "offset": 1}],
    }
    curl(broker, "-d", '{"topic": "liked", "cluster": "shop", "value": "second"}', "/events")
    assert [event["value"] for event in curl(broker, *polling)["events"]] == ["second"]
    both = curl(broker, "-d", '{"name": "both", "brokers": 1, "num_brokers": 1}', "/cluster")
    assert (both["status"], both["field"]) == (422, "num_brokers")
    assert curl(broker, "-X", "DELETE", "/v1/clusters/shop") == ""


def test_curl_creates_uses_and_deletes_a_local_cluster(broker: RealBroker) -> None:
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
