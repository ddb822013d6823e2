"""Tests commits and fetches in a group of the consumer protocol: permission, deletion and retention."""

from typing import Any

import pytest

from builders.groups.consumers import Consumer
from builders.groups.machine import Driver, offering, subscription
from builders.groups.topics import Topics
from millstream.groups.commands import FetchOffsets
from millstream.groups.responses import JoinResponse, OffsetsResponse
from millstream.model.errors import ErrorCode

DAY_MS = 24 * 3600 * 1000


def _driver(**settings: Any) -> tuple[Driver, Consumer]:
    driver = Driver(topics=Topics(orders=4, bills=1), **settings)
    consumer = Consumer(driver, "m")
    consumer.join()
    return driver, consumer


def _as(consumer: Consumer, epoch: int) -> JoinResponse:
    return JoinResponse(generation=epoch, member_id=consumer.member_id)


def test_a_member_can_commit_with_its_epoch() -> None:
    driver, consumer = _driver()
    assert driver.commit(("orders", 0, 7), by=_as(consumer, 1)).error is ErrorCode.NONE
    assert driver.offsets() == {("orders", 0): 7}


@pytest.mark.parametrize("epoch", [0, 2])
def test_commits_and_fetches_with_another_epoch_get_stale_member_epoch(epoch: int) -> None:
    driver, consumer = _driver()
    assert driver.commit(("orders", 0, 7), by=_as(consumer, epoch)).error is ErrorCode.STALE_MEMBER_EPOCH
    fetched = driver.ask(FetchOffsets("g", None, "m", epoch), OffsetsResponse)
    assert fetched.error is ErrorCode.STALE_MEMBER_EPOCH
    assert driver.offsets() == {}


def test_members_of_the_consumer_protocol_cannot_commit_with_older_versions() -> None:
    driver, consumer = _driver()
    committed = driver.commit(("orders", 0, 7), by=_as(consumer, 1), knows_stale_epoch=False)
    assert committed.error is ErrorCode.UNSUPPORTED_VERSION


def test_a_classic_member_with_an_old_generation_gets_illegal_generation() -> None:
    driver, _ = _driver()
    joined = driver.join(protocols=offering("range", metadata=subscription("orders")))
    assert driver.commit(("orders", 0, 7), by=joined, knows_stale_epoch=False).error is ErrorCode.NONE
    before = JoinResponse(generation=joined.generation - 1, member_id=joined.member_id)
    assert driver.commit(("orders", 0, 7), by=before).error is ErrorCode.ILLEGAL_GENERATION


def test_a_non_member_can_commit_only_to_an_empty_group() -> None:
    driver, consumer = _driver()
    assert driver.commit(("orders", 0, 7)).error is ErrorCode.UNKNOWN_MEMBER_ID
    consumer.leave()
    assert driver.commit(("orders", 0, 7)).error is ErrorCode.NONE


def test_a_former_member_can_neither_commit_nor_fetch() -> None:
    driver, consumer = _driver()
    consumer.leave()
    assert driver.commit(("orders", 0, 7), by=_as(consumer, 1)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.ask(FetchOffsets("g", None, "m", 1), OffsetsResponse).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_subscribed_topics_cannot_be_deleted() -> None:
    driver, consumer = _driver()
    driver.commit(("orders", 0, 7), ("bills", 0, 3), by=_as(consumer, 1))
    deleted = driver.delete_offsets(("orders", 0), ("bills", 0))
    assert deleted.errors == {("orders", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    assert driver.offsets() == {("orders", 0): 7}
    consumer.subscribe(regex="ord.*")
    assert driver.delete_offsets(("orders", 0)).errors == {("orders", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


def test_offsets_of_subscribed_topics_do_not_expire() -> None:
    driver, consumer = _driver(offsets_retention_ms=DAY_MS, consumer_session_timeout_ms=10 * DAY_MS)
    driver.commit(("orders", 0, 7), ("bills", 0, 3), by=_as(consumer, 1))
    driver.pass_time(2 * DAY_MS)
    assert driver.offsets() == {("orders", 0): 7}


def test_the_retention_starts_when_the_group_becomes_empty() -> None:
    driver, consumer = _driver(offsets_retention_ms=2 * DAY_MS, consumer_session_timeout_ms=10 * DAY_MS)
    driver.commit(("orders", 0, 7), by=_as(consumer, 1))
    driver.pass_time(DAY_MS)
    consumer.leave()
    driver.pass_time(2 * DAY_MS - 1)
    assert driver.offsets() == {("orders", 0): 7}
    driver.pass_time(DAY_MS)
    assert driver.offsets() == {}
    assert list(driver.machine.group_ids()) == []
