"""Tests that a bounded number of topics have traffic figures of their own, and that no figure is lost."""

from uuid import UUID

import pytest

from builders.batches import batch
from builders.partitions import Site, committed
from millstream.model.errors import MillstreamError
from millstream.model.ids import TopicId
from millstream.model.names import check_new_topic_name
from millstream.partition.served.topic_figures import OTHER, TopicFigures


def topic_id(number: int) -> TopicId:
    return TopicId(UUID(int=number))


def messages(figures: TopicFigures) -> dict[str, int]:
    return {name: traffic.fetched_messages for name, traffic in figures.snapshot()}


def read(figures: TopicFigures, number: int, count: int) -> None:
    figures.of(f"t{number}", topic_id(number)).fetched(100 * count, messages=count)


def test_topics_beyond_the_maximum_share_figures() -> None:
    figures = TopicFigures(own_max=2)
    for number in range(4):
        read(figures, number, 10**number)
    assert messages(figures) == {OTHER: 1_100, "t0": 1, "t1": 10}


def test_the_sum_of_all_figures_survives_the_deletion_of_topics() -> None:
    figures = TopicFigures(own_max=2)
    for number in range(4):
        read(figures, number, 10**number)
    figures.deleted(topic_id(0))
    figures.deleted(topic_id(3))
    assert messages(figures) == {OTHER: 1_101, "t1": 10}
    read(figures, 2, 5)
    read(figures, 5, 7)
    assert messages(figures) == {OTHER: 1_106, "t1": 10, "t5": 7}, "a later topic uses the free place"
    figures.deleted(topic_id(9))
    assert sum(messages(figures).values()) == 1_123


def test_all_partitions_of_a_topic_share_its_figures_also_after_growth() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders", 2)
        await partitions.grow("orders", 3)
        assert len({id(partition.traffic) for partition in partitions.of("orders")}) == 1

    Site().run(story)


def test_a_topic_that_is_created_again_starts_at_zero_and_the_sum_stays() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        for expected in (0, 3):
            await partitions.create("orders")
            (partition,) = partitions.of("orders")
            await committed(partition, batch(b"1", b"2", b"3"))
            found = {name: traffic.produced_messages for name, traffic in partitions.figures.snapshot()}
            assert found == {OTHER: expected, "orders": 3}
            await partitions.delete("orders")

    Site().run(story)


def test_no_client_can_create_a_topic_with_the_label_of_the_shared_figures() -> None:
    with pytest.raises(MillstreamError, match="reserved"):
        check_new_topic_name(OTHER)
