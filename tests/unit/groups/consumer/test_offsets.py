"""Commits and fetches of a group of the new protocol: who may, and what is kept."""

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


def test_a_member_commits_with_its_epoch() -> None:
    driver, consumer = _driver()
    assert driver.commit(("orders", 0, 7), by=_as(consumer, 1)).error is ErrorCode.NONE
    assert driver.offsets() == {("orders", 0): 7}


@pytest.mark.parametrize("epoch", [0, 2])
def test_another_epoch_is_stale(epoch: int) -> None:
    driver, consumer = _driver()
    assert driver.commit(("orders", 0, 7), by=_as(consumer, epoch)).error is ErrorCode.STALE_MEMBER_EPOCH
    fetched = driver.ask(FetchOffsets("g", None, "m", epoch), OffsetsResponse)
    assert fetched.error is ErrorCode.STALE_MEMBER_EPOCH
    assert driver.offsets() == {}


def test_a_version_that_cannot_be_told_of_stale_epochs_is_too_old_for_the_new_protocol() -> None:
    driver, consumer = _driver()
    committed = driver.commit(("orders", 0, 7), by=_as(consumer, 1), knows_stale_epoch=False)
    assert committed.error is ErrorCode.UNSUPPORTED_VERSION


def test_a_classic_member_is_told_that_its_generation_is_over() -> None:
    driver, _ = _driver()
    joined = driver.join(protocols=offering("range", metadata=subscription("orders")))
    assert driver.commit(("orders", 0, 7), by=joined, knows_stale_epoch=False).error is ErrorCode.NONE
    before = JoinResponse(generation=joined.generation - 1, member_id=joined.member_id)
    assert driver.commit(("orders", 0, 7), by=before).error is ErrorCode.ILLEGAL_GENERATION


def test_whoever_is_no_member_commits_only_while_nobody_is() -> None:
    driver, consumer = _driver()
    assert driver.commit(("orders", 0, 7)).error is ErrorCode.UNKNOWN_MEMBER_ID
    consumer.leave()
    assert driver.commit(("orders", 0, 7)).error is ErrorCode.NONE


def test_a_member_that_was_fenced_commits_nothing() -> None:
    driver, consumer = _driver()
    consumer.leave()
    assert driver.commit(("orders", 0, 7), by=_as(consumer, 1)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.ask(FetchOffsets("g", None, "m", 1), OffsetsResponse).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_topics_that_are_read_cannot_be_deleted() -> None:
    driver, consumer = _driver()
    driver.commit(("orders", 0, 7), ("bills", 0, 3), by=_as(consumer, 1))
    deleted = driver.delete_offsets(("orders", 0), ("bills", 0))
    assert deleted.errors == {("orders", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    assert driver.offsets() == {("orders", 0): 7}
    consumer.subscribe(regex="ord.*")
    assert driver.delete_offsets(("orders", 0)).errors == {("orders", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


def test_offsets_of_topics_that_are_read_do_not_expire() -> None:
    driver, consumer = _driver(offsets_retention_ms=DAY_MS, consumer_session_timeout_ms=10 * DAY_MS)
    driver.commit(("orders", 0, 7), ("bills", 0, 3), by=_as(consumer, 1))
    driver.pass_time(2 * DAY_MS)
    assert driver.offsets() == {("orders", 0): 7}


def test_an_empty_group_keeps_its_offsets_for_the_whole_retention_from_when_it_became_empty() -> None:
    driver, consumer = _driver(offsets_retention_ms=2 * DAY_MS, consumer_session_timeout_ms=10 * DAY_MS)
    driver.commit(("orders", 0, 7), by=_as(consumer, 1))
    driver.pass_time(DAY_MS)
    consumer.leave()
    driver.pass_time(2 * DAY_MS - 1)
    assert driver.offsets() == {("orders", 0): 7}
    driver.pass_time(DAY_MS)
    assert driver.offsets() == {}
    assert list(driver.machine.group_ids()) == []
