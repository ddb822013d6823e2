"""Tests that each answered request is counted once, with its duration and its errors, on every path of a response."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from builders.batches import batch
from builders.partitions import ELSEWHERE, add_topic_elsewhere
from builders.requests import RawPeer, framed
from builders.served import ServedBroker, fetch_one, produce, puts, serve, until
from millstream.broker.dispatch.api_stats import api_metrics
from millstream.model.errors import ErrorCode
from millstream.process.metrics import Histogram
from millstream.storage.store import FlushPolicy
from millstream.wire.produce import write_produce_request
from millstream.wire.subscribe import END


class Figures:
    """The change of a broker's figures since the last look."""

    def __init__(self, broker: ServedBroker) -> None:
        self._broker = broker
        self._last = self._all()

    def _all(self) -> dict[tuple[str, ...], int]:
        found: dict[tuple[str, ...], int] = {}
        for metric in api_metrics(self._broker.table.stats.values()):
            for labels, value in metric.samples:
                if not isinstance(value, Histogram):
                    found[tuple(labels.values())] = int(value)
        return found

    def more(self) -> dict[tuple[str, ...], int]:
        """Return the new requests by API, and the new errors by API and name."""
        before, self._last = self._last, self._all()
        return {key: more for key, value in self._last.items() if (more := value - before.get(key, 0))}


def all_of(api: str, broker: ServedBroker) -> Histogram:
    return next(each.durations for each in broker.table.stats.values() if each.api == api)


@pytest.mark.parametrize("policy", list(FlushPolicy))
def test_successes_are_counted_once_by_api(policy: FlushPolicy, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer, figures = await broker.peer(), Figures(broker)
        await produce(peer, "events", batch())
        await puts(peer, "events", batch())
        await fetch_one(peer, "events", 0)
        assert figures.more() == {("Produce",): 1, ("Puts",): 1, ("Fetch",): 1}
        await peer.ask("ApiVersions", 3, {"client_software_name": "a", "client_software_version": "1"})
        await peer.ask("Metadata", 9, {"topics": None})
        await peer.ask("Metadata", 9, {"topics": None})
        await peer.ask("FindCoordinator", 3, {"key": "g", "key_type": 0})
        assert figures.more() == {("ApiVersions",): 1, ("Metadata",): 2, ("FindCoordinator",): 1}

    serve(tmp_path, story, policy=policy)


def test_errors_are_counted_by_api_and_name(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer, figures = await broker.peer(), Figures(broker)
        await produce(peer, "nothing", batch())
        await puts(peer, "nothing", batch())
        assert figures.more() == {
            ("Produce",): 1, ("Produce", "UNKNOWN_TOPIC_OR_PARTITION"): 1,
            ("Puts",): 1, ("Puts", "UNKNOWN_TOPIC_OR_PARTITION"): 1,
        }  # fmt: skip
        await peer.ask("Role", 0, {"role": 2, "producer_group": None})
        figures.more()
        await produce(peer, "events", batch())
        assert figures.more() == {("Produce",): 1, ("Produce", "POLICY_VIOLATION"): 1}, "a refusal before the handler"
        await peer.ask("ReadIterator", 0, {"iterator": b"", "max_bytes": 1, "max_wait_ms": 0})
        assert sum(figures.more().values()) == 2, "one request with one error"

    serve(tmp_path, story)


def test_a_waiting_fetch_counts_once_with_its_wait_and_its_final_error(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        writer, reader, figures = await broker.peer(), await broker.peer(), Figures(broker)
        durations = all_of("Fetch", broker)
        reading = asyncio.create_task(fetch_one(reader, "events", 5, max_wait_ms=200))
        await until(lambda: broker.memory.incoming_bytes > 0)
        for _ in range(3):
            await produce(writer, "events", batch(b"x"))  # Wakes the fetch, which reads again and goes on to wait.
        assert figures.more() == {("Produce",): 3}
        broker.clock.turn(200)
        await reading
        assert figures.more() == {("Fetch",): 1, ("Fetch", "OFFSET_OUT_OF_RANGE"): 1}
        assert durations.sum == pytest.approx(0.2)

    serve(tmp_path, story)


def test_a_write_without_a_response_is_counted_when_it_is_handled(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer, figures = await broker.peer(), Figures(broker)
        body = write_produce_request(9, [("events", [(0, batch())])], acks=0, timeout_ms=1_000)
        asking = asyncio.create_task(peer.ask_raw("Produce", 9, body))
        await until(lambda: all_of("Produce", broker).count == 1)
        asking.cancel()
        assert figures.more() == {("Produce",): 1}

    serve(tmp_path, story)


def test_a_request_that_closes_its_connection_is_not_counted(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer, figures = await broker.peer(), Figures(broker)
        body = write_produce_request(9, [("nothing", [(0, batch())])], acks=0, timeout_ms=1_000)
        with pytest.raises(ConnectionError):
            await peer.ask_raw("Produce", 9, body)
        assert figures.more() == {}

    serve(tmp_path, story)


def test_an_unsupported_version_of_api_versions_is_counted_for_each_request(tmp_path: Path) -> None:
    async def ask(peer: RawPeer) -> None:
        peer.send(framed(b"\x00\x12\x00\x63\x00\x00\x00\x09\xff\xff"))
        await peer.frame()

    async def story(broker: ServedBroker) -> None:
        peer, figures = await broker.peer(), Figures(broker)
        for _ in range(2):
            await ask(peer)
        assert figures.more() == {("ApiVersions",): 2, ("ApiVersions", "UNSUPPORTED_VERSION"): 2}

    serve(tmp_path, story)


def test_errors_in_cached_metadata_are_counted_in_each_response(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic("here")
        cluster, peer = broker.cluster, await broker.peer()
        add_topic_elsewhere(cluster, "there")
        figures = Figures(broker)
        failed = ("Metadata", ErrorCode.LEADER_NOT_AVAILABLE.name)

        async def errors(wanted: list[dict[str, Any]] | None) -> int:
            await peer.ask("Metadata", 9, {"topics": wanted})
            more = figures.more()
            assert more.pop(("Metadata",)) == 1
            count = more.pop(failed, 0)
            assert more == {}
            return count

        named = [{"name": "here"}, {"name": "there"}]
        assert [await errors(None), await errors(named)] == [0, 0]
        cluster.publish(cluster.image.broker_left(ELSEWHERE.node_id))
        assert [await errors(None) for _ in range(3)] == [1, 1, 1], "encoded once and sent three times"
        assert [await errors(named), await errors(named[:1])] == [1, 0]
        cluster.publish(cluster.image.broker_registered(ELSEWHERE))
        assert [await errors(None), await errors(named)] == [0, 0]

    serve(tmp_path, story)


def test_a_push_subscription_counts_its_request_and_the_error_that_ends_it(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer, figures = await broker.peer(), Figures(broker)
        topics = [{"name": "events", "partitions": [{"partition": 0, "offset": END}]}]
        window = {"window_messages": 1_000, "window_bytes": 1_000_000}
        await peer.ask("Subscribe", 0, {"topics": topics, **window})
        assert figures.more() == {("Subscribe",): 1}
        await broker.partitions.delete("events")
        await peer.frame()
        assert figures.more() == {("Subscribe", "UNKNOWN_TOPIC_OR_PARTITION"): 2}, "in its row, and for all of it"

    serve(tmp_path, story)
