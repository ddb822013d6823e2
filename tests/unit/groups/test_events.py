"""Tests the events of groups: each change is logged once, with its member, client and reason."""

import logging
from typing import Any

import pytest

from builders.groups.consumers import REBALANCE_MS as CONSUMER_REBALANCE_MS
from builders.groups.consumers import SESSION_MS as CONSUMER_SESSION_MS
from builders.groups.consumers import Consumer
from builders.groups.machine import REBALANCE_MS, SESSION_MS, Driver, offering
from builders.groups.site import GROUP, GroupSite, run_groups, settled_member
from builders.groups.topics import Topics
from millstream.groups.commands import LeaveGroup, LeavingMember
from millstream.groups.responses import LeaveResponse
from millstream.process.logs import fields_of

CLIENT = {"peer": "127.0.0.1", "client_id": "client"}


def taken(driver: Driver) -> list[tuple[str, dict[str, Any]]]:
    """Return the events since the last call, without the group."""
    events, driver.events = driver.events, []
    assert {event.fields["group"] for event in events} <= {"g"}
    return [(event, {name: fields[name] for name in fields if name != "group"}) for event, fields in events]


def rebalanced(reason: str, *, members: int, **version: int) -> tuple[str, dict[str, Any]]:
    return "group rebalanced", {**version, "members": members, "reason": reason}


# Classic groups


def test_members_that_join_a_classic_group_and_its_rebalances_are_logged() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    assert taken(driver) == [
        ("member joined", {"member": leader.member_id, **CLIENT}),
        rebalanced("member joined", generation=1, members=1),
        ("member joined", {"member": follower.member_id, **CLIENT}),
        rebalanced("member joined", generation=2, members=2),
    ]
    driver.heartbeat(leader)
    assert taken(driver) == []


def test_a_member_that_leaves_a_classic_group_is_logged() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    taken(driver)
    driver.leave(follower.member_id)
    driver.join(leader.member_id)
    assert taken(driver) == [
        ("member left", {"member": follower.member_id, **CLIENT, "reason": "leave request"}),
        rebalanced("member left", generation=3, members=1),
    ]


def test_a_member_of_a_classic_group_that_times_out_is_logged() -> None:
    driver = Driver()
    (member,) = driver.stable(static=True)
    taken(driver)
    driver.pass_time(SESSION_MS)
    fields = {"member": member.member_id, "instance": "i0", **CLIENT, "reason": "session timeout"}
    assert taken(driver) == [("member expired", fields), rebalanced("member expired", generation=2, members=0)]


def test_a_member_that_does_not_rejoin_a_classic_group_is_logged() -> None:
    driver = Driver()
    leader, follower = driver.stable(2, session_timeout_ms=2 * REBALANCE_MS)
    taken(driver)
    driver.send_join(leader.member_id, protocols=offering("range", metadata=b"other"))
    driver.pass_time(REBALANCE_MS)
    assert taken(driver) == [
        ("member expired", {"member": follower.member_id, **CLIENT, "reason": "rebalance timeout"}),
        rebalanced("member changed", generation=3, members=1),
    ]


def test_a_member_that_does_not_sync_is_logged() -> None:
    driver = Driver()
    (member,) = driver.gathered(session_timeout_ms=2 * REBALANCE_MS)
    taken(driver)
    driver.pass_time(REBALANCE_MS)
    (event, fields), _ = taken(driver)
    assert (event, fields["member"], fields["reason"]) == ("member expired", member.member_id, "sync timeout")


def test_a_returning_static_member_is_logged_without_a_rebalance() -> None:
    driver = Driver()
    driver.stable(static=True)
    taken(driver)
    returned = driver.join(instance_id="i0")
    assert taken(driver) == [("member joined", {"member": returned.member_id, "instance": "i0", **CLIENT})]


# Groups of the consumer protocol


def consumers(driver: Driver, *names: str, **options: Any) -> list[Consumer]:
    made = [Consumer(driver, name, **options) for name in names]
    for consumer in made:
        consumer.join()
    return made


def test_members_that_join_a_consumer_group_and_its_rebalances_are_logged() -> None:
    driver = Driver(topics=Topics(orders=6))
    first, _ = consumers(driver, "a", "b")
    assert taken(driver) == [
        ("member joined", {"member": "a", **CLIENT}),
        rebalanced("member joined", epoch=1, members=1),
        ("member joined", {"member": "b", **CLIENT}),
        rebalanced("member joined", epoch=2, members=2),
    ]
    first.beat()
    assert taken(driver) == []


def test_a_member_that_leaves_a_consumer_group_is_logged() -> None:
    driver = Driver(topics=Topics(orders=6))
    first, second = consumers(driver, "a", "b")
    taken(driver)
    second.epoch = -1
    driver.send(second._request(is_full=False))
    first.beat()
    assert taken(driver) == [
        ("member left", {"member": "b", **CLIENT, "reason": "leave request"}),
        rebalanced("member left", epoch=3, members=1),
    ]


def test_a_static_member_that_steps_out_and_returns_is_logged() -> None:
    driver = Driver(topics=Topics(orders=6))
    (first,) = consumers(driver, "a", instance_id="i0")
    taken(driver)
    first.epoch = -2
    driver.send(first._request(is_full=False))
    Consumer(driver, "b", instance_id="i0").join()
    assert taken(driver) == [
        ("member left", {"member": "a", "instance": "i0", **CLIENT, "reason": "static member away"}),
        ("member joined", {"member": "b", "instance": "i0", **CLIENT}),
    ]


def test_a_consumer_whose_session_ends_is_logged() -> None:
    driver = Driver(topics=Topics(orders=6))
    consumers(driver, "a")
    taken(driver)
    driver.pass_time(CONSUMER_SESSION_MS)
    assert taken(driver) == [("member expired", {"member": "a", **CLIENT, "reason": "session timeout"})]
    consumers(driver, "b")
    assert taken(driver)[1] == rebalanced("member joined", epoch=3, members=1)


def test_a_consumer_that_does_not_revoke_its_partitions_is_logged() -> None:
    driver = Driver(topics=Topics(orders=6))
    first, _ = consumers(driver, "a", "b")
    first.beat(is_answer_lost=True)
    taken(driver)
    driver.pass_time(CONSUMER_REBALANCE_MS)
    assert taken(driver) == [("member expired", {"member": "a", **CLIENT, "reason": "rebalance timeout"})]


def test_a_changed_subscription_is_the_reason_of_a_rebalance() -> None:
    driver = Driver(topics=Topics(orders=6, bills=4))
    (first,) = consumers(driver, "a")
    taken(driver)
    first.topics = ("bills",)
    first.beat(full=True)
    assert taken(driver) == [rebalanced("member changed", epoch=2, members=1)]


# The runtime


def logged(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [fields_of(record) for record in caplog.records if record.msg == event]


def test_the_runtime_logs_the_events_of_groups(caplog: pytest.LogCaptureFixture) -> None:
    async def story(site: GroupSite) -> None:
        member = await settled_member(site)
        await site.ask(LeaveGroup(GROUP, (LeavingMember(member.member_id, None),)), LeaveResponse)
        client = {"group": GROUP, "member": member.member_id, "peer": "host", "client_id": "client"}
        assert logged(caplog, "member joined") == [client]
        assert logged(caplog, "member left") == [{**client, "reason": "leave request"}]
        assert [line["generation"] for line in logged(caplog, "group rebalanced")] == [1, 2]

    with caplog.at_level(logging.INFO):
        run_groups(story)
