"""Tests that a poll reports the consumer's partitions and their lag."""

import pytest

from builders.gateways.consumer_site import AT_ONCE, ConsumerSite, by_number, is_empty, lags, play
from millstream.gateway.operations.reads import ReadLimits


def test_a_poll_reports_its_partitions_with_the_lag_after_its_messages() -> None:
    async def story(site: ConsumerSite) -> None:
        await site.write(10, range(2))
        first = await site.poll(limits=ReadLimits(max_messages=6, wait_s=0))
        assert lags(first) == {number: 10 - by_number(first.positions).get(number, 0) for number in (0, 1)} | {2: 0}
        while sum((await site.commit()).values()) < 20:
            last = await site.poll(limits=ReadLimits(max_messages=6, wait_s=0))
        assert lags(last) == {0: 0, 1: 0, 2: 0}
        idle = await site.poll(limits=AT_ONCE)
        assert (is_empty(idle), lags(idle)) == (True, {0: 0, 1: 0, 2: 0})

    play(story, partitions=3)


def test_a_repeated_delivery_reports_the_lag_of_the_partitions_that_it_reads() -> None:
    async def story(site: ConsumerSite) -> None:
        await site.write(4)
        assert lags(await site.poll(limits=ReadLimits(max_messages=1, wait_s=0))) == {0: 3, 1: 0}
        await site.write(2)
        assert lags(await site.poll(limits=AT_ONCE, at=1)) == {0: 5, 1: None}

    play(story, partitions=2)


def test_a_poll_reports_no_lag_when_the_consumer_has_no_partition() -> None:
    async def story(site: ConsumerSite) -> None:
        idle = await site.poll("a", AT_ONCE)
        assert (is_empty(idle), lags(idle)) == (True, {0: 0})
        without = await site.poll("b", ReadLimits(wait_s=1))
        assert (is_empty(without), lags(without)) == (True, {})

    play(story)


@pytest.mark.parametrize(("start", "lag"), [("beginning", 2), ("latest", 0)])
def test_lag_counts_from_the_start_position_when_nothing_is_committed(start: str, lag: int) -> None:
    async def story(site: ConsumerSite) -> None:
        await site.write(3)
        assert await site.committed() == {}
        assert lags(await site.poll(limits=ReadLimits(max_messages=1, wait_s=0), start=start)) == {0: lag}

    play(story)
