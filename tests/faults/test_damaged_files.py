"""Damages each kind of file of a killed broker: what was acknowledged is readable, or refused and reported.

Each round kills one broker under load, copies its data directory for each damage, and starts a broker on the copy. A
short round damages every kind of file once; `make faults ROUNDS=20` covers the combinations and all flush policies.

Reported means that `/health` has a problem. There are two documented exceptions. Data in the page cache is sent
unchecked, and the reader finds the damage. Under `interval` and `os`, messages of the last second may be lost, but
`/health` reports that too.
"""

import json
import re
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

import millstream
from faults.rounds import ROUNDS, SEED
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.testing.real_broker import BrokerFailedError, RealBroker

PARTITIONS = 2
GROUP = "readers"
ARGS = ("--segment-bytes", "16384", "--offsets-partitions", "1")
NOT_READ = (".lock", "catalog.sqlite.lock", "control.sock", "reserve")
"""Files without content that a start depends on."""

POLICIES = ("always", "interval", "os")
PLACES = 1 if ROUNDS == 1 else 3
"""Damages for each kind of file and round."""

Damage = Callable[[Path, Random], None]


def flip(path: Path, random: Random) -> None:
    content = bytearray(path.read_bytes())
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    path.write_bytes(content)


def zero(path: Path, random: Random) -> None:
    content = bytearray(path.read_bytes())
    first = random.randrange(len(content))
    content[first : first + 200] = bytes(len(content[first : first + 200]))
    path.write_bytes(content)


def truncate(path: Path, random: Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: random.randrange(len(content))])


def remove(path: Path, random: Random) -> None:
    path.unlink()


DAMAGES = (flip, zero, truncate, remove)


@dataclass
class Acknowledged:
    """The acknowledgements that clients received before the kill."""

    values: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=dict)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)


def load(broker: RealBroker, random: Random) -> Acknowledged:
    """Write to topics with and without message ids, commit offsets of a group, and restart once in between."""
    told = Acknowledged({(topic, number): {} for topic in ("plain", "named") for number in range(PARTITIONS)})
    for part in range(3):
        with millstream.connect(broker.bootstrap) as client:
            if not part:
                for topic in ("plain", "named"):
                    client.create_topic(topic, partitions=PARTITIONS)
            with client.producer() as producer:
                for number in range(40):
                    for topic, partition in told.values:
                        value = f"{topic}-{partition}-{part}-{number}".encode().ljust(random.randrange(20, 600), b".")
                        name = f"{partition}-{part}-{number}" if topic == "named" else None
                        result = producer.put(topic, value, partition=partition, message_id=name).result()
                        told.values[topic, partition][result.offset] = value
            with client.consumer("plain", group=GROUP, auto_commit=None) as consumer:
                consumer.poll(timeout=30, max_messages=10)
                consumer.commit()
        if part == 0:
            broker.restart()
    with millstream.connect(broker.bootstrap) as client:
        told.committed = committed(client)
    assert told.committed
    return told


def kinds(data: Path) -> dict[str, list[Path]]:
    """The files with content by kind: their names without numbers and ids."""
    found: dict[str, list[Path]] = {}
    for path in sorted(data.rglob("*")):
        if path.is_file() and path.name not in NOT_READ and path.stat().st_size:
            folder = "log/" if path.parent != data else ""
            found.setdefault(folder + re.sub(r"[0-9a-f]{8,}|\d+", "#", path.name), []).append(path)
    return found


def plans(data: Path, random: Random) -> Iterator[tuple[Path, Damage]]:
    for paths in kinds(data).values():
        for damage in random.sample(DAMAGES, PLACES):
            yield random.choice(paths), damage


@pytest.mark.timeout(600 * PLACES)
@pytest.mark.parametrize("round_number", range(ROUNDS))
def test_acknowledged_data_is_readable_or_refused_whatever_file_is_damaged(tmp_path: Path, round_number: int) -> None:
    random = Random(f"{SEED} {round_number} damage")
    data = tmp_path / "killed"
    policy = POLICIES[round_number % len(POLICIES)]
    with RealBroker(data, flush=policy, extra_args=ARGS) as broker:
        told = load(broker, random)
        broker.kill()
    for number, (path, damage) in enumerate(plans(data, random)):
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(data, copy, ignore=shutil.ignore_patterns("control.sock"))
        damage(copy / path.relative_to(data), random)
        what = f"{damage.__name__} {path.relative_to(data)} with seed {SEED}, round {round_number}"
        broker = RealBroker(copy, flush=policy, extra_args=ARGS)
        try:
            problem = check(broker, told, may_lose=policy != "always")
        finally:
            broker.close()
            shutil.rmtree(copy)
        assert problem is None, f"{what}: {problem}"


def health_problems(broker: RealBroker) -> list[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.operator_port}/health", timeout=60) as response:
        told = json.load(response)
    assert (told["status"] == "ok") == (not told["problems"])
    return list(told["problems"])


def check(broker: RealBroker, told: Acknowledged, *, may_lose: bool) -> str | None:
    """Return what is wrong with a broker on damaged files; None if everything is readable or refused and reported.

    With `may_lose`, a reported loss is accepted.
    """
    try:
        broker.start()
    except BrokerFailedError:
        text = broker.log_text()
        is_explained = "\nmillstream: " in "\n" + text and "Traceback" not in text
        return None if is_explained else f"the start failed without a reason: {text[-500:]}"
    with millstream.connect(broker.bootstrap) as client:
        found = [differing_or_refused(client, *where, values) for where, values in told.values.items()]
        found.append(differing_commits(client, told))
    lost = [text for text, is_loss in found if is_loss]
    if lost and not may_lose:
        return lost[0]
    unreported = [text for text, _ in found if text]
    return f"the health reports no problem, but {unreported[0]}" if unreported and not health_problems(broker) else None


Difference = tuple[str, bool]
"""A description of the unreadable data (empty if everything is readable), and True if the data is lost, not refused."""
NO_DIFFERENCE: Difference = "", False


def differing_or_refused(client: millstream.Client, topic: str, partition: int, values: dict[int, bytes]) -> Difference:
    try:
        wrong = differing(client, topic, partition, values)
    except MillstreamError as error:
        if error.code is ErrorCode.CORRUPT_MESSAGE:  # Data in the page cache is sent unchecked.
            return NO_DIFFERENCE
        is_refused = error.code in (ErrorCode.PARTITION_QUARANTINED, ErrorCode.KAFKA_STORAGE_ERROR)
        return f"{topic}-{partition}: {error}", not is_refused
    return (wrong, True) if wrong else NO_DIFFERENCE


def differing(client: millstream.Client, topic: str, partition: int, values: dict[int, bytes]) -> str | None:
    """Compare all acknowledged messages, and write one more: it must not get an acknowledged offset."""
    seen: dict[int, bytes] = {}
    end = max(values) + 1
    while len(seen) < end:
        result = client.read(topic, partition, max(seen, default=-1) + 1)
        if not result.messages:
            return f"{topic}-{partition} ends at {len(seen)}, but {end} messages were acknowledged"
        seen |= {message.offset: message.value or b"" for message in result.messages}
    if wrong := [offset for offset, value in values.items() if seen.get(offset) != value]:
        return f"{topic}-{partition} has other messages at the offsets {wrong[:5]}"
    with client.producer() as producer:
        written = producer.put(topic, b"after", partition=partition).result()
    return f"{topic}-{partition}: offset {written.offset} is assigned twice" if written.offset < end else None


def committed(client: millstream.Client) -> dict[tuple[str, int], int]:
    return {
        (where.topic, where.partition): each.offset for where, each in client.groups.offsets(GROUP, timeout=5).items()
    }


def differing_commits(client: millstream.Client, told: Acknowledged) -> Difference:
    try:
        found = committed(client)
    except MillstreamError as error:
        return f"group: {error}", error.code not in (ErrorCode.PARTITION_QUARANTINED, *RETRIED)
    lost = {where: offset for where, offset in told.committed.items() if found.get(where) != offset}
    return (f"committed offsets differ: {lost}, found {found}", True) if lost else NO_DIFFERENCE


RETRIED = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
)
