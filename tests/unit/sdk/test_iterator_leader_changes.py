"""Tests that reads of iterators stay at the leader that answered, when iterators still name the previous leader."""

import pytest

from builders.sdk.message_values import values_of
from builders.sdk.previous_leader import PORT, PreviousLeader
from builders.sdk.simulated_consumers import GROUP, LONG_S, TOPIC, Ground, play
from builders.simulated_node import HOST
from millstream.broker import signed_iterators
from millstream.model.broker_endpoint import BrokerEndpoint
from millstream.model.ids import BrokerId
from millstream.sdk.connection.address import Address

OLD_HOST = "old"
OLD = BrokerEndpoint(BrokerId(2), OLD_HOST, PORT)
CURRENT = BrokerEndpoint(BrokerId(1), HOST, PORT)


async def previous_leader(ground: Ground) -> PreviousLeader:
    """Start a broker that was the leader of the partition before its first leader epoch ended."""
    await ground.elect_again()
    broker = PreviousLeader(CURRENT, leader_epoch=1)
    await broker.listen(ground.network.host(OLD_HOST), OLD_HOST)
    return broker


def outdated_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the coordinator name the previous leader in every iterator."""
    monkeypatch.setattr(signed_iterators, "_server", lambda iterator, cluster: OLD)


def test_three_polls_send_one_request_to_the_previous_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(ground: Ground) -> None:
        await ground.write(6)
        old = await previous_leader(ground)
        outdated_coordinator(monkeypatch)
        async with ground.client.iterators(TOPIC, group=GROUP, max_messages=2) as iterators:
            values: list[bytes] = []
            for _ in range(3):
                batch = await iterators.poll(LONG_S)
                assert batch is not None
                values += values_of(batch.messages)
        assert values == ground.written[0]
        assert old.reads == 1

    play(story)


def test_three_waits_at_the_log_end_send_one_request_to_the_previous_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(ground: Ground) -> None:
        old = await previous_leader(ground)
        outdated_coordinator(monkeypatch)
        async with ground.client.iterators(TOPIC, group=GROUP) as iterators:
            assert await iterators.poll(18.0) is None
            await ground.write(1)
            assert await iterators.poll(LONG_S) is not None
        assert old.reads == 1

    play(story)


def test_the_following_iterator_of_a_single_read_names_the_leader_that_answered() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(6)
        old, calls = await previous_leader(ground), ground.client.iterator_calls()
        await calls.join(GROUP, "a")
        iterator = await calls.get(GROUP, "a", TOPIC, 0, max_messages=2)
        iterator = iterator._replace(server=Address(OLD_HOST, PORT))
        values: list[bytes] = []
        for _ in range(3):
            batch = await calls.read(iterator)
            values += values_of(batch.messages)
            assert batch.following is not None
            iterator = batch.following
        assert values == ground.written[0]
        assert old.reads == 1

    play(story)
