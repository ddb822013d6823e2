"""Tests subscriptions by regular expression, including malicious expressions."""

from typing import Any

import pytest

from builders.groups.consumers import Consumer, describe
from builders.groups.machine import Driver
from builders.groups.topics import Topics
from millstream.groups.consumer import regex_subscriptions
from millstream.groups.consumer.regex_subscriptions import EXPRESSION_CHARS_MAX, Regexes, compile_expression
from millstream.groups.responses import ConsumerHeartbeatResponse
from millstream.model.errors import ErrorCode, MillstreamError


def _driver(**settings: Any) -> Driver:
    topics = Topics(bills=1)
    for name in ("orders-eu", "orders-us", "old-orders-eu"):
        topics.make(name, 2)
    return Driver(topics=topics, **settings)


def _names(consumer: Consumer) -> set[str]:
    return {name for name, _ in consumer.places}


@pytest.mark.parametrize(
    ("expression", "matched"),
    [
        ("orders-.*", {"orders-eu", "orders-us"}),
        ("orders", set()),
        (".*-eu", {"orders-eu", "old-orders-eu"}),
        ("orders-(eu|us)|bills", {"orders-eu", "orders-us", "bills"}),
        ("(?i)ORDERS-EU", {"orders-eu"}),
        ("", set()),
        ("()", set()),
    ],
)
def test_a_topic_regex_matches_whole_names_only(expression: str, matched: set[str]) -> None:
    consumer = Consumer(_driver(), "m", topics=(), regex=expression)
    consumer.join()
    assert _names(consumer) == matched


def test_topics_subscribed_by_name_and_by_expression_are_combined() -> None:
    consumer = Consumer(_driver(), "m", topics=("bills",), regex="orders-.*")
    consumer.join()
    assert _names(consumer) == {"bills", "orders-eu", "orders-us"}


@pytest.mark.parametrize("expression", ["[", "(", "(a)\\1", "(?=a)", "(?<!a)b", "a{1001}", "*", "\\"])
def test_an_expression_that_re2_rejects_is_refused_without_effect(expression: str) -> None:
    driver = _driver()
    consumer = Consumer(driver, "m", topics=(), regex=expression)
    answer = driver.ask(consumer._request(True), ConsumerHeartbeatResponse)
    assert answer.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert expression in answer.detail
    assert not driver.log
    assert describe(driver).error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_member_keeps_its_expression_when_the_new_one_is_invalid() -> None:
    driver = _driver()
    consumer = Consumer(driver, "m", topics=(), regex="orders-.*")
    consumer.join()
    consumer.regex = "["
    answer = driver.ask(consumer._request(True), ConsumerHeartbeatResponse)
    assert answer.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert consumer.beat().error is ErrorCode.NONE
    assert describe(driver).members[0].subscribed_regex == "orders-.*"


@pytest.mark.parametrize("expression", ["a" * (EXPRESSION_CHARS_MAX + 1), "(?:a{100}b{100}c{100}){33}"])
def test_an_expression_that_is_too_large_is_refused(expression: str) -> None:
    with pytest.raises(MillstreamError) as refused:
        compile_expression(expression)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert len(str(refused.value)) < 400


def test_new_matching_topics_are_added_and_deleted_ones_are_removed() -> None:
    consumer = Consumer(_driver(), "m", topics=(), regex="orders-.*")
    consumer.join()
    consumer.image.make("orders-asia", 1)
    consumer.image.delete("orders-us")
    for _ in range(3):
        consumer.beat()
    assert _names(consumer) == {"orders-eu", "orders-asia"}


def test_members_may_use_different_expressions_and_unused_ones_are_removed() -> None:
    driver = _driver()
    first = Consumer(driver, "a", topics=(), regex="orders-.*")
    second = Consumer(driver, "b", topics=(), regex=".*-eu")
    for _ in range(4):
        first.beat()
        second.beat()
    assert _names(first) | _names(second) == {"orders-eu", "orders-us", "old-orders-eu"}
    first.subscribe("bills", regex="")
    for _ in range(4):
        first.beat()
        second.beat()
    assert (_names(first), _names(second)) == ({"bills"}, {"orders-eu", "old-orders-eu"})
    assert not any(b"orders-.*" in record.key for record in driver.machine.dump())


def test_an_expression_in_use_is_resolved_again_after_a_restart() -> None:
    driver = _driver()
    consumer = Consumer(driver, "m", topics=(), regex="orders-.*")
    consumer.join()
    consumer.image.make("orders-asia", 1)
    consumer.driver = driver.restarted()
    for _ in range(2):
        consumer.beat()
    assert _names(consumer) == {"orders-eu", "orders-us", "orders-asia"}


@pytest.mark.parametrize("expression", ["(a|aa)+$", "(.*)*(.*)*x", "(x+x+)+y", "(.*a.{30}){3}", "(?:.*[a-w].*){100}"])
def test_malicious_expressions_do_a_bounded_amount_of_work_per_call(expression: str) -> None:
    """A backtracking matcher would not finish with the first of these names."""
    topics = Topics()
    for number in range(300):
        topics.make(f"{number:03}{'xa' * 123}")
    regexes = Regexes(topics)
    instructions = compile_expression(expression).programsize
    calls = 1
    while regexes.matching(expression) is None:
        calls += 1
    work = sum(len(name) + 1 for name in topics.names()) * instructions
    assert calls <= work // regex_subscriptions.WORK_MAX + 1


def test_a_long_search_continues_by_timer_and_members_get_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regex_subscriptions, "WORK_MAX", 1)
    driver = _driver()
    consumer = Consumer(driver, "m", topics=("bills",), regex="orders-.*")
    consumer.join()
    assert _names(consumer) == {"bills"}
    driver.pass_time(100)
    consumer.beat()
    assert _names(consumer) == {"bills", "orders-eu", "orders-us"}


def test_regex_matches_are_cached_until_the_topics_change(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = Topics(a=1, b=1)
    regexes = Regexes(topics)
    assert regexes.matching("[ab]") == ("a", "b")
    monkeypatch.setattr(regex_subscriptions, "WORK_MAX", -1)
    assert regexes.matching("[ab]") == ("a", "b")
    topics.make("c")
    assert regexes.matching("[ab]") is None
